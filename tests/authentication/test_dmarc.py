"""DMARC by the DNS tree walk (RFC 9989), over a real DNS server."""

import pytest

from engine.authentication import dmarc, dmarc_record
from engine.authentication.dmarc import MAX_QUERIES, AuthenticatedDomains, DmarcResult
from engine.store.resolver import Resolver
from ops.local.dns import DnsBehaviour, Responder

NONE = AuthenticatedDomains(None, ())


def publish(zone: Responder, **records: str) -> None:
    """Publish DMARC records; `_` in a name stands for a dot."""
    for name, record in records.items():
        zone.set(f"_dmarc.{name.replace('_', '.')}", "TXT", [f"v=DMARC1; {record}"])


async def evaluated(dns: Resolver, author: str, *, spf: str | None = None, dkim: tuple[str, ...] = ()) -> DmarcResult:
    return await dmarc.evaluate(dns, author, AuthenticatedDomains(spf, dkim))


async def test_a_domain_without_a_record_has_no_result(zone: Responder, resolver: Resolver) -> None:
    assert (await evaluated(resolver, "shop.test", spf="shop.test")).result == "none"


@pytest.mark.parametrize(
    ("record", "spf", "dkim", "result"),
    [
        ("p=reject", "shop.test", (), "pass"),
        ("p=reject", None, ("shop.test",), "pass"),
        ("p=reject", None, ("other.test", "mail.shop.test"), "pass"),
        ("p=reject", "bounce.shop.test", (), "pass"),
        ("p=reject; aspf=s", "bounce.shop.test", (), "fail"),
        ("p=reject; adkim=s", None, ("mail.shop.test",), "fail"),
        ("p=reject; adkim=s", "bounce.shop.test", ("mail.shop.test",), "pass"),
        ("p=reject", "evilshop.test", ("evilshop.test", "shop.test.evil.test"), "fail"),
        ("p=reject", "test", (), "fail"),
        ("p=reject", None, (), "fail"),
    ],
)
async def test_one_aligned_domain_passes(
    zone: Responder, resolver: Resolver, record: str, spf: str | None, dkim: tuple[str, ...], result: str
) -> None:
    publish(zone, shop_test=record)

    found = await evaluated(resolver, "shop.test", spf=spf, dkim=dkim)

    assert found.result == result
    assert found.policy == ("reject" if result == "fail" else "")


@pytest.mark.parametrize(
    ("record", "spf", "dkim", "reason"),
    [
        (
            "p=reject",
            None,
            ("lists.test",),
            "signature of lists.test is not aligned, because it is not within shop.test",
        ),
        ("p=reject; adkim=s", None, ("mail.shop.test",), "because adkim=s allows shop.test alone"),
        ("p=reject; aspf=s", "bounce.shop.test", (), "SPF passed for bounce.shop.test, which is not aligned"),
        ("p=reject", None, (), "neither SPF nor DKIM passed"),
    ],
)
async def test_a_failure_says_why_what_passed_does_not_count(
    zone: Responder, resolver: Resolver, record: str, spf: str | None, dkim: tuple[str, ...], reason: str
) -> None:
    publish(zone, shop_test=record)

    found = await evaluated(resolver, "shop.test", spf=spf, dkim=dkim)

    assert (found.result, found.detail.startswith("shop.test asks for reject: ")) == ("fail", True)
    assert reason in found.detail


async def test_a_subdomain_inherits_the_policy_of_its_organization(zone: Responder, resolver: Resolver) -> None:
    publish(zone, shop_test="p=reject; sp=quarantine")
    zone.set("news.shop.test", "A", ["192.0.2.1"])

    aligned = await evaluated(resolver, "news.shop.test", spf="shop.test")
    failed = await evaluated(resolver, "news.shop.test")

    assert (aligned.result, failed.result, failed.policy) == ("pass", "fail", "quarantine")


async def test_a_subdomain_that_does_not_exist_has_its_own_policy(zone: Responder, resolver: Resolver) -> None:
    publish(zone, shop_test="p=none; sp=quarantine; np=reject")
    zone.set("news.shop.test", "A", ["192.0.2.1"])

    assert (await evaluated(resolver, "news.shop.test")).policy == "quarantine"
    assert (await evaluated(resolver, "missing.shop.test")).policy == "reject"


@pytest.mark.parametrize(("record", "policy"), [("p=reject; t=y", "quarantine"), ("p=quarantine; t=y", "none")])
async def test_test_mode_lowers_the_policy_by_one_level(
    zone: Responder, resolver: Resolver, record: str, policy: str
) -> None:
    publish(zone, shop_test=record)

    assert (await evaluated(resolver, "shop.test")).policy == policy


async def test_psd_n_makes_a_subdomain_an_organization(zone: Responder, resolver: Resolver) -> None:
    publish(zone, shop_test="p=reject", eu_shop_test="p=reject; psd=n")

    assert (await evaluated(resolver, "a.eu.shop.test", spf="b.eu.shop.test")).result == "pass"
    assert (await evaluated(resolver, "eu.shop.test", spf="shop.test")).result == "fail"
    assert (await evaluated(resolver, "shop.test", spf="eu.shop.test")).result == "fail"


async def test_customers_of_a_public_suffix_do_not_align(zone: Responder, resolver: Resolver) -> None:
    publish(zone, co_test="p=reject; psd=y; sp=quarantine")

    assert (await evaluated(resolver, "one.co.test", spf="two.co.test")).result == "fail"
    assert (await evaluated(resolver, "one.co.test", spf="mail.one.co.test")).result == "pass"
    assert (await evaluated(resolver, "one.co.test")).policy == "quarantine"


async def test_the_organization_is_the_highest_name_with_a_record(zone: Responder, resolver: Resolver) -> None:
    publish(zone, shop_test="p=none", news_shop_test="p=reject")

    found = await evaluated(resolver, "news.shop.test", spf="mail.shop.test")

    assert found.result == "pass"
    assert (await evaluated(resolver, "news.shop.test")).policy == "reject"


@pytest.mark.parametrize(
    ("records", "result"),
    [
        (["v=DMARC1; p=reject", "v=DMARC1; p=none"], "none"),  # several records are none
        (["v=spf1 -all", "v=DMARC1; p=reject"], "fail"),
        (["v=DMARC2; p=reject"], "none"),
        (["v=dmarc1; p=reject"], "none"),
        (["p=reject; v=DMARC1"], "none"),
        (["v=DMARC1"], "none"),
        (["v=DMARC1; adkim=s"], "none"),  # RFC 9989 4.10.1: without a valid p=, only rua= asks for processing
        (["v=DMARC1; rua=mailto:a@shop.test"], "fail"),
        (["v=DMARC1; p=maybe"], "none"),
        (["v=DMARC1; p=maybe; rua=mailto:a@shop.test"], "fail"),
        (["v=DMARC1; p=reject; sp=maybe"], "none"),
        (["v = DMARC1 ; P = REJECT ; pct=0 ; unknown ; x=y"], "fail"),
    ],
)
async def test_invalid_records_are_ignored(
    zone: Responder, resolver: Resolver, records: list[str], result: str
) -> None:
    zone.set("_dmarc.shop.test", "TXT", records)

    assert (await evaluated(resolver, "shop.test")).result == result


async def test_a_failure_that_hides_whether_a_subdomain_exists_is_temporary(
    zone: Responder, resolver: Resolver
) -> None:
    publish(zone, shop_test="p=none; np=reject")
    zone.behave("news.shop.test", DnsBehaviour(rcode="SERVFAIL"))

    assert (await evaluated(resolver, "news.shop.test")).result == "temperror"
    assert (await evaluated(resolver, "news.shop.test", spf="shop.test")).result == "pass"


async def test_a_walk_ends_at_a_public_suffix_even_where_it_starts(zone: Responder, resolver: Resolver) -> None:
    publish(zone, bank_test="p=reject; psd=y", test="p=none")

    assert (await evaluated(resolver, "bank.test", spf="test")).policy == "reject"
    assert (await evaluated(resolver, "mail.one.bank.test", spf="one.bank.test")).result == "pass"
    assert (await evaluated(resolver, "one.bank.test", dkim=("mail.two.bank.test",))).result == "fail"


async def test_pct_is_not_used(zone: Responder, resolver: Resolver) -> None:
    publish(zone, shop_test="p=reject; pct=0")

    assert (await evaluated(resolver, "shop.test")).policy == "reject"


async def test_a_dns_failure_is_a_temporary_error(zone: Responder, resolver: Resolver) -> None:
    zone.behave("_dmarc.shop.test", DnsBehaviour(rcode="SERVFAIL"))

    assert (await evaluated(resolver, "shop.test")).result == "temperror"


@pytest.mark.parametrize("failed", ["", "shop.test", "mail.shop.test"])
async def test_a_temporary_failure_of_a_domain_that_could_align_is_no_failure(
    zone: Responder, resolver: Resolver, failed: str
) -> None:
    publish(zone, shop_test="p=reject")

    found = await dmarc.evaluate(resolver, "shop.test", AuthenticatedDomains(None, (), (failed,)))

    assert (found.result, found.policy) == ("temperror", "")


async def test_a_forger_cannot_hide_a_failure_behind_his_own_broken_domain(zone: Responder, resolver: Resolver) -> None:
    publish(zone, shop_test="p=reject")

    found = await dmarc.evaluate(resolver, "shop.test", AuthenticatedDomains(None, (), ("evil.test", "evilshop.test")))

    assert (found.result, found.policy) == ("fail", "reject")


def test_a_walk_skips_to_the_last_seven_labels() -> None:
    assert dmarc.walk_names("a.b.c.d.e.f.g.h.i.j.mail.example.com") == [
        "a.b.c.d.e.f.g.h.i.j.mail.example.com", "g.h.i.j.mail.example.com", "h.i.j.mail.example.com",
        "i.j.mail.example.com", "j.mail.example.com", "mail.example.com", "example.com", "com",
    ]  # fmt: skip
    assert dmarc.walk_names("shop.test") == ["shop.test", "test"]
    assert max(len(dmarc.walk_names("a." * count + "test")) for count in range(1, 60)) == MAX_QUERIES


async def test_queries_are_bounded_whatever_the_message_claims(zone: Responder, resolver: Resolver) -> None:
    deep = "a." * 50 + "shop.test"
    publish(zone, shop_test="p=reject")

    await evaluated(resolver, deep, spf="x." + deep, dkim=tuple(f"{n}." + deep for n in range(40)))

    assert len(zone.questions) <= MAX_QUERIES * dmarc.MAX_WALKS


def test_a_long_record_is_cut() -> None:
    record = dmarc_record.select([b"v=DMARC1; p=reject; x=" + b"a;" * 30_000])

    assert record is not None
    assert record.policy == "reject"
