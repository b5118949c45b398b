"""MTA-STS (RFC 8461): texts, fetching from a real HTTPS server, and which policy holds when the world fails."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.netaddr import is_public
from engine.base.settings import HostPort
from engine.store.resolver import Resolver
from mta.outbound.tls import mta_sts_cache
from mta.outbound.tls.mta_sts import MAX_OCTETS, MAX_S, InvalidPolicy, StsMode, StsPolicy, parse, record_id
from mta.outbound.tls.mta_sts_cache import EffectivePolicy, StsPolicies
from mta.outbound.tls.mta_sts_fetch import StsFetcher
from mta.outbound.tls.policy import by_sts
from mta.outbound.tls.report_counts import TlsReportCounts
from mta.smtp.client.tls import TlsMode
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.patience import PATIENCE_S
from tests.harness.transport import Certified, PolicyHost, answer, authority, policy_host

DOMAIN = "sts.test"
RECORD = "v=STSv1; id=20160831085700Z;"
LINES = ("version: STSv1", "mode: enforce", "mx: mail.sts.test", "mx: *.backup.test", "max_age: 86400")


# -- texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "identity"),
    [
        ((b"v=STSv1; id=20160831085700Z;",), "20160831085700Z"),  # RFC 8461 3.1
        ((b"v=STSv1;id=1",), "1"),
        ((b"v=STSv1; ext=x,y:z; id=a1",), "a1"),
        ((b"v=STSv1; id=a; id=b;",), "a"),
        ((b"something else", b"v=STSv1; id=7;"), "7"),
        ((), None),
        ((b"v=STSv1; id=1;", b"v=STSv1; id=2;"), None),
        ((b"v=STSv1",), None),
        ((b"v=STSv1;",), None),
        ((b"v=STSv1; id=;",), None),
        ((b"v=STSv1; id=with-hyphen;",), None),
        ((b"v=STSv1; id=" + b"1" * 33,), None),
        ((b"v=STSv1; key=1;",), None),
        ((b"V=STSv1; id=1;",), None),
        ((b" v=STSv1; id=1;",), None),
        ((b"v=STSv1; id=1; nonsense",), None),
        ((b"v=STSv1; id=\xff;",), None),
        ((b"v=STSv1; id=1\x00;",), None),
    ],
)
def test_exactly_one_well_formed_record_announces_a_policy(texts: tuple[bytes, ...], identity: str | None) -> None:
    assert record_id(texts) == identity


def test_the_policy_of_the_rfc_is_read() -> None:
    text = (
        b"version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmx: backupmx.example.com\r\n"
    )
    policy = parse(text + b"max_age: 604800\r\n")
    assert policy == StsPolicy(StsMode.ENFORCE, ("mail.example.com", "*.example.net", "backupmx.example.com"), 604_800)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("version: STSv1\nmode: none\nmax_age: 1", StsPolicy(StsMode.NONE, (), 1)),
        ("mode:testing\nmx:A.B.test\nmax_age:0\nversion:STSv1\n", StsPolicy(StsMode.TESTING, ("a.b.test",), 0)),
        (
            "version: STSv1\nmode: none\nmode: enforce\nmax_age: 5\nmax_age: 6\nx-new: anything at all ✉\n",
            StsPolicy(StsMode.NONE, (), 5),
        ),
        ("version: STSv1 \t\nmode: none\nmax_age: 9999999999\n\n", StsPolicy(StsMode.NONE, (), MAX_S)),
    ],
)
def test_fields_come_in_any_order_and_unknown_or_repeated_ones_are_passed_over(text: str, policy: StsPolicy) -> None:
    assert parse(text.encode()) == policy


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"mode: none\nmax_age: 1",
        b"version: STSv2\nmode: none\nmax_age: 1",
        b"version: stsv1\nmode: none\nmax_age: 1",
        b"version: STSv1\nmax_age: 1",
        b"version: STSv1\nmode: Enforce\nmx: a.test\nmax_age: 1",
        b"version: STSv1\nmode: none",
        b"version: STSv1\nmode: none\nmax_age: -1",
        b"version: STSv1\nmode: none\nmax_age: 1.5",
        b"version: STSv1\nmode: none\nmax_age: 12345678901",
        "version: STSv1\nmode: none\nmax_age: ١".encode(),
        b"version: STSv1\nmode: enforce\nmax_age: 1",
        b"version: STSv1\nmode: enforce\nmx: *\nmax_age: 1",
        b"version: STSv1\nmode: enforce\nmx: *.*.test\nmax_age: 1",
        b"version: STSv1\nmode: enforce\nmx: a.*.test\nmax_age: 1",
        b"version: STSv1\nmode: enforce\nmx: a b.test\nmax_age: 1",
        b"version: STSv1\nmode: enforce\nmx: .test\nmax_age: 1",
        b"version: STSv1\nmode: enforce\nmx: -a.test\nmax_age: 1",
        "version: STSv1\nmode: enforce\nmx: bücher.test\nmax_age: 1".encode(),
        b"version: STSv1\nmode: enforce\nmx: " + b"a." * 200 + b"test\nmax_age: 1",
        b"version: STSv1\nmode: enforce\nmx:\nmax_age: 1",
        b"version: STSv1\rmode: none\rmax_age: 1",
        b"version: STSv1\nmode none\nmax_age: 1",
        b"version: STSv1\nmode: none\nmax_age: 1\nx: \x00",
        b"version: STSv1\nmode: none\nmax_age: 1\nx: \xff",
        b"version: STSv1\nmode: none\nmax_age: 1\n" + b"x: y\n" * 20_000,
        b"<html>not found</html>",
    ],
)
def test_what_is_no_policy_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        parse(text)
    assert str(refused.value).isprintable()


@given(st.binary(max_size=300))
def test_no_octets_break_the_parsers(raw: bytes) -> None:
    record_id([raw, b"v=STSv1;" + raw])
    for text in (raw, b"version: STSv1\nmode: none\nmax_age: 1\n" + raw):
        try:
            parse(text)
        except InvalidPolicy as refused:
            assert str(refused).isprintable()  # noqa: PT017 - most inputs are refused, some are not


@pytest.mark.parametrize(
    ("pattern", "host", "good"),
    [
        ("mail.example.com", "mail.example.com", True),
        ("mail.example.com", "MAIL.example.com.", True),
        ("mail.example.com", "mx.mail.example.com", False),
        ("mail.example.com", "example.com", False),
        ("*.example.com", "mail.example.com", True),  # RFC 8461 4.1
        ("*.example.com", "example.com", False),
        ("*.example.com", "foo.bar.example.com", False),
        ("*.example.com", "mailexample.com", False),
        ("*.com", "example.com", True),
        ("*.example.com", ".example.com", False),
        ("*.example.com", "", False),
        ("localhost", "localhost", True),
    ],
)
def test_a_wildcard_matches_exactly_one_leftmost_label(pattern: str, host: str, good: bool) -> None:
    assert StsPolicy(StsMode.ENFORCE, (pattern,), 1).allows(host) is good


@pytest.mark.parametrize(
    ("mode", "host", "demanded", "refused", "noted"),
    [
        (StsMode.ENFORCE, "mx.a.test", TlsMode.VERIFIED, False, False),
        (StsMode.ENFORCE, "mx.b.test", TlsMode.VERIFIED, True, False),
        (StsMode.TESTING, "mx.a.test", TlsMode.OPPORTUNISTIC, False, False),
        (StsMode.TESTING, "mx.b.test", TlsMode.OPPORTUNISTIC, False, True),
        (StsMode.NONE, "mx.b.test", TlsMode.OPPORTUNISTIC, False, False),
    ],
)
def test_enforce_refuses_strangers_testing_notes_them_and_none_demands_nothing(
    mode: StsMode, host: str, demanded: TlsMode, refused: bool, noted: bool
) -> None:
    demand = by_sts(StsPolicy(mode, ("mx.a.test",), 1), host)
    assert (demand.mode, demand.refused is not None, demand.noted is not None) == (demanded, refused, noted)
    assert demand.counted == (None if mode is StsMode.NONE else "sts")


# -- fetching --------------------------------------------------------------------------------------


@pytest.fixture
async def zone() -> AsyncIterator[Responder]:
    async with Responder() as responder:
        responder.set(f"mta-sts.{DOMAIN}", "A", ["127.0.0.1"])
        responder.set(f"_mta-sts.{DOMAIN}", "TXT", [RECORD], ttl=1)
        yield responder


@pytest.fixture
async def resolver(zone: Responder) -> AsyncIterator[Resolver]:
    made = Resolver([HostPort(*zone.address)], query_timeout_s=2.0, budget_s=PATIENCE_S)
    yield made
    await made.close()


@pytest.fixture
async def host(root: Certified, tmp_path: Path) -> AsyncIterator[PolicyHost]:
    async with policy_host(root, tmp_path, DOMAIN) as running:
        running.policy(*LINES)
        yield running


@pytest.fixture
def fetcher(resolver: Resolver, host: PolicyHost, root: Certified, tmp_path: Path) -> StsFetcher:
    return StsFetcher(
        resolver, may_dial=lambda _: True, authorities=root.pem(tmp_path), port=host.port, timeout_s=PATIENCE_S
    )


async def fault_of(fetcher: StsFetcher, domain: str = DOMAIN) -> TlsFailure:
    found = await fetcher.fetch(domain)
    assert isinstance(found, TlsFailure), found
    assert found.reason.isprintable()
    return found


async def test_a_policy_is_fetched_from_its_well_known_place(host: PolicyHost, fetcher: StsFetcher) -> None:
    body = await fetcher.fetch(DOMAIN)
    assert isinstance(body, bytes)
    assert parse(body).patterns == ("mail.sts.test", "*.backup.test")
    [request] = host.requests
    assert request.startswith(b"GET /.well-known/mta-sts.txt HTTP/1.1\r\n")
    assert f"Host: mta-sts.{DOMAIN}".encode() in request


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed(host: PolicyHost, fetcher: StsFetcher, status: str) -> None:
    where = f"Location: https://mta-sts.{DOMAIN}:{host.port}/.well-known/mta-sts.txt\r\n"
    host.response = answer(b"", status=status, more=where)
    assert (await fault_of(fetcher)).kind is TlsFailureType.STS_FETCH_ERROR
    assert len(host.requests) == 1


@pytest.mark.parametrize(
    "response",
    [
        answer(b"version: STSv1", status="404 Not Found"),
        answer(b"version: STSv1", status="500 Oops"),
        answer(b"version: STSv1", status="204 No Content"),
        answer(b"version: STSv1", kind="text/html"),
        answer(b"version: STSv1", kind="application/octet-stream"),
        answer(b"x" * (MAX_OCTETS + 1)),
        answer(b"x" * 50, more="Transfer-Encoding: chunked\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nversion",
        b"220 mx.sts.test ESMTP\r\n",
        b"",
    ],
    ids=["404", "500", "204", "html", "octets", "large", "two lengths", "cut off", "smtp", "closed"],
)
async def test_anything_but_a_whole_plain_text_is_an_error(
    host: PolicyHost, fetcher: StsFetcher, response: bytes
) -> None:
    host.response = response
    assert (await fault_of(fetcher)).kind is TlsFailureType.STS_FETCH_ERROR


async def test_parameters_and_case_of_the_content_type_do_not_matter(host: PolicyHost, fetcher: StsFetcher) -> None:
    host.response = answer(b"hello", kind="Text/Plain; charset=utf-8")
    assert await fetcher.fetch(DOMAIN) == b"hello"


async def test_a_slow_policy_host_is_given_up_within_the_time_for_all(host: PolicyHost, fetcher: StsFetcher) -> None:
    host.delay_s = 30.0
    fetcher._timeout_s = 2.0
    assert "no answer within 2 s" in (await fault_of(fetcher)).reason


async def test_the_certificate_must_be_good_for_the_policy_host(
    zone: Responder, resolver: Resolver, root: Certified, fetcher: StsFetcher, tmp_path: Path
) -> None:
    for certified in (root.leaf("mta-sts.other.test"), root.leaf(DOMAIN), authority().leaf(f"mta-sts.{DOMAIN}")):
        async with PolicyHost(certified.server(tmp_path)) as host:
            fetcher._port = host.port
            fault = await fault_of(fetcher)
            assert fault.kind is TlsFailureType.STS_WEBPKI_INVALID
            assert host.requests == []


async def test_a_private_policy_host_is_not_dialled(
    resolver: Resolver, host: PolicyHost, root: Certified, tmp_path: Path
) -> None:
    guarded = StsFetcher(resolver, may_dial=is_public, authorities=root.pem(tmp_path), port=host.port)
    assert "does not resolve to a public address" in (await fault_of(guarded)).reason
    assert host.requests == []


async def test_a_policy_host_that_does_not_exist_or_listen_is_an_error(
    zone: Responder, host: PolicyHost, fetcher: StsFetcher
) -> None:
    assert (await fault_of(fetcher, "nowhere.test")).kind is TlsFailureType.STS_FETCH_ERROR
    zone.set("mta-sts.closed.test", "A", ["127.0.0.9"])
    assert (await fault_of(fetcher, "closed.test")).kind is TlsFailureType.STS_FETCH_ERROR
    zone.behave("mta-sts.lame.test", DnsBehaviour(rcode="SERVFAIL"))
    assert "SERVFAIL" in (await fault_of(fetcher, "lame.test")).reason


# -- which policy holds --------------------------------------------------------------------------------


class Policies:
    """Policies of a process that has just started, on the test's database."""

    def __init__(self, pool: asyncpg.Pool, resolver: Resolver, fetcher: StsFetcher) -> None:
        self._counts = TlsReportCounts(pool)
        self.sts = StsPolicies(pool, resolver, fetcher, self._counts)

    @property
    def faults(self) -> list[tuple[str, TlsFailureType]]:
        counts = self._counts._counts.items()
        return [(domain, TlsFailureType(kind)) for (_, domain, _, kind, _), one in counts for _ in range(one.sessions)]

    async def holds(self, domain: str = DOMAIN) -> StsPolicy | None:
        held = await self.sts.of(domain)
        assert isinstance(held, EffectivePolicy)
        return held.policy


@pytest.fixture
async def clean(pool: asyncpg.Pool) -> AsyncIterator[asyncpg.Pool]:
    await pool.execute("DELETE FROM sts_policies")
    yield pool
    await pool.execute("DELETE FROM sts_policies")


@pytest.fixture
async def policies(clean: asyncpg.Pool, resolver: Resolver, fetcher: StsFetcher) -> AsyncIterator[Policies]:
    made = Policies(clean, resolver, fetcher)
    yield made
    await made.sts.close()


async def fresh(clean: asyncpg.Pool, zone: Responder, fetcher: StsFetcher) -> Policies:
    """Another process: nothing in memory."""
    fetcher._names._resolver = Resolver([HostPort(*zone.address)], query_timeout_s=2.0, budget_s=PATIENCE_S)
    return Policies(clean, fetcher._names._resolver, fetcher)


def forget_dns(resolver: Resolver) -> None:
    resolver._txt._known.clear()


async def test_a_domain_without_a_record_has_no_policy_and_is_not_fetched_from(
    policies: Policies, host: PolicyHost
) -> None:
    assert await policies.holds("plain.test") is None
    assert host.requests == []
    assert policies.faults == []


async def test_a_policy_is_fetched_once_and_shared_by_all_processes(
    clean: asyncpg.Pool, zone: Responder, policies: Policies, host: PolicyHost, fetcher: StsFetcher
) -> None:
    first = await asyncio.gather(*(policies.holds() for _ in range(20)))
    assert set(first) == {parse("\n".join(LINES).encode())}
    other = await fresh(clean, zone, fetcher)
    assert await other.holds() == first[0]
    assert len(host.requests) == 1
    row = await clean.fetchrow("SELECT * FROM sts_policies")
    assert row is not None
    assert (row["domain"], row["record_id"]) == (DOMAIN, "20160831085700Z")
    assert (row["expires_at"] - row["fetched_at"]).total_seconds() == 86_400


async def test_a_new_id_is_fetched_anew_and_an_old_one_is_not(
    zone: Responder, policies: Policies, host: PolicyHost, resolver: Resolver
) -> None:
    await policies.holds()
    host.policy("version: STSv1", "mode: testing", "mx: new.sts.test", "max_age: 100")
    forget_dns(resolver)
    unchanged = await policies.holds()
    assert unchanged is not None
    assert unchanged.mode is StsMode.ENFORCE
    zone.set(f"_mta-sts.{DOMAIN}", "TXT", ["v=STSv1; id=2;"])
    forget_dns(resolver)
    changed = await policies.holds()
    assert changed is not None
    assert changed.mode is StsMode.TESTING
    assert len(host.requests) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("trouble", ["servfail", "silence", "gone", "malformed"])
async def test_a_kept_policy_rules_whatever_becomes_of_the_record(
    zone: Responder, policies: Policies, resolver: Resolver, trouble: str
) -> None:
    kept = await policies.holds()
    assert kept is not None
    name = f"_mta-sts.{DOMAIN}"
    if trouble == "servfail":
        zone.behave(name, DnsBehaviour(rcode="SERVFAIL"))
    elif trouble == "silence":
        zone.behave(name, DnsBehaviour(drop=True))
    else:
        zone.set(name, "TXT", [] if trouble == "gone" else ["v=STSv1; nonsense"])
    forget_dns(resolver)
    assert await policies.holds() == kept
    assert policies.faults == []


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (answer(b"", status="404 Not Found"), TlsFailureType.STS_FETCH_ERROR),
        (answer(b"version: STSv1\n"), TlsFailureType.STS_INVALID),
    ],
)
async def test_a_kept_policy_rules_when_its_successor_cannot_be_fetched(
    zone: Responder, policies: Policies, host: PolicyHost, resolver: Resolver, response: bytes, kind: TlsFailureType
) -> None:
    kept = await policies.holds()
    zone.set(f"_mta-sts.{DOMAIN}", "TXT", ["v=STSv1; id=2;"])
    host.response = response
    forget_dns(resolver)
    assert await policies.holds() == kept
    assert policies.faults == [(DOMAIN, kind)]


async def test_a_slow_record_does_not_hold_the_mail_for_long(
    zone: Responder, policies: Policies, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await policies.holds()
    monkeypatch.setattr(mta_sts_cache, "TXT_S", 0.1)
    zone.behave(f"_mta-sts.{DOMAIN}", DnsBehaviour(delay_s=600.0))
    forget_dns(resolver)
    async with asyncio.timeout(PATIENCE_S):
        assert await policies.holds() == kept


async def test_a_failed_fetch_is_not_repeated_for_every_message(policies: Policies, host: PolicyHost) -> None:
    host.response = answer(b"", status="500 Oops")
    for _ in range(5):
        assert await policies.holds() is None
    assert len(host.requests) == 1
    assert policies.faults == [(DOMAIN, TlsFailureType.STS_FETCH_ERROR)]


async def test_a_policy_past_its_max_age_no_longer_rules(
    clean: asyncpg.Pool, zone: Responder, policies: Policies, host: PolicyHost, resolver: Resolver
) -> None:
    await policies.holds()
    await clean.execute("UPDATE sts_policies SET expires_at = now() - interval '1 second'")
    zone.set(f"_mta-sts.{DOMAIN}", "TXT", [])
    forget_dns(resolver)
    assert await policies.holds() is None


async def test_an_expired_policy_with_the_same_id_is_fetched_again(
    clean: asyncpg.Pool, policies: Policies, host: PolicyHost
) -> None:
    await policies.holds()
    await clean.execute("UPDATE sts_policies SET expires_at = now() - interval '1 second'")
    assert await policies.holds() is not None
    assert len(host.requests) == 2
    assert await clean.fetchval("SELECT expires_at > now() FROM sts_policies")


async def test_a_policy_in_use_is_renewed_each_day_without_waiting_for_it(
    clean: asyncpg.Pool, policies: Policies, host: PolicyHost
) -> None:
    kept = await policies.holds()
    await clean.execute("UPDATE sts_policies SET fetched_at = now() - interval '25 hours'")
    host.delay_s = 2.0
    assert await policies.holds() == kept
    assert not await clean.fetchval("SELECT fetched_at > now() - interval '1 hour' FROM sts_policies")
    async with asyncio.timeout(PATIENCE_S):
        while not await clean.fetchval("SELECT fetched_at > now() - interval '1 hour' FROM sts_policies"):
            await asyncio.sleep(0.02)
    assert len(host.requests) == 2


async def test_a_policy_that_lives_no_time_serves_this_mail_alone(policies: Policies, host: PolicyHost) -> None:
    host.policy("version: STSv1", "mode: enforce", "mx: mail.sts.test", "max_age: 0")
    held = await policies.sts.of(DOMAIN)
    assert held.policy is not None
    assert held.until <= time.monotonic()
    await policies.holds()
    assert len(host.requests) == 2


async def test_expired_policies_are_deleted_in_the_end(clean: asyncpg.Pool, policies: Policies) -> None:
    await policies.holds()
    expires = await clean.fetchval("SELECT expires_at FROM sts_policies")
    await policies.sts.forget_expired(expires)
    assert await clean.fetchval("SELECT count(*) FROM sts_policies") == 1
    await clean.execute("UPDATE sts_policies SET expires_at = expires_at - interval '1 second'")
    await policies.sts.forget_expired(expires)
    assert await clean.fetchval("SELECT count(*) FROM sts_policies") == 0


def test_a_policy_is_a_value() -> None:
    policy = parse("\n".join(LINES).encode())
    assert msgspec.structs.replace(policy, max_age_s=86_400) == policy
