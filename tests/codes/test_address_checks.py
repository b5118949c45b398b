"""Address checks: verdicts from DNS as it really is, lists, and exact charges."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.plans import CAPS, Plan
from engine.base.settings import HostPort
from engine.codes.address_checks import domain_lists, rules, service
from engine.codes.address_checks.routes import route_of, routes_of
from engine.codes.address_checks.types import AddressCheck, AddressVerdict, CheckedBatch, CheckReason, MailRoute
from engine.store.resolver import Resolver
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api


@pytest.fixture(scope="module")
async def dns() -> AsyncIterator[Responder]:
    async with Responder() as running:
        running.set("mx.good.test", "A", ["192.0.2.1"])
        running.set("good.test", "MX", ["10 mx.good.test."])
        running.set("six.test", "AAAA", ["2001:db8::1"])
        running.set("four.test", "A", ["192.0.2.4"])
        running.set("null.test", "MX", ["0 ."])
        running.set("both.test", "MX", ["0 .", "10 mx.good.test."])
        running.set("broken.test", "MX", ["10 gone.broken.test."])
        running.set("second.test", "MX", ["10 gone.broken.test.", "20 mx.good.test."])
        running.set("text.test", "TXT", ["hello"])
        running.set("alias.test", "CNAME", ["good.test."])
        running.set("xn--mnchen-3ya.test", "MX", ["10 mx.good.test."])
        yield running


@pytest.fixture
async def resolver(dns: Responder) -> AsyncIterator[Resolver]:
    made = Resolver((HostPort(*dns.address),))
    yield made
    await made.close()


async def check(pool: asyncpg.Pool, resolver: Resolver, account: TestAccount, *texts: str) -> CheckedBatch:
    return await service.check(pool, resolver, account.id, texts, clock.now())


async def one(pool: asyncpg.Pool, resolver: Resolver, account: TestAccount, text: str) -> AddressCheck:
    return (await check(pool, resolver, account, text)).results[0]


async def used(pool: asyncpg.Pool, account: TestAccount) -> int:
    return int(await pool.fetchval("SELECT coalesce(sum(used), 0) FROM plan_usage WHERE account_id = $1", account.id))


@pytest.mark.parametrize(
    ("domain", "route"),
    [
        ("good.test", MailRoute.SERVER), ("six.test", MailRoute.SERVER), ("four.test", MailRoute.SERVER),
        ("null.test", MailRoute.NULL_MX), ("both.test", MailRoute.SERVER), ("broken.test", MailRoute.NO_SERVER),
        ("second.test", MailRoute.SERVER), ("text.test", MailRoute.NO_SERVER), ("alias.test", MailRoute.SERVER),
        ("nowhere.test", MailRoute.NO_DOMAIN),
    ],
)  # fmt: skip
async def test_a_domain_takes_mail_as_its_records_say(resolver: Resolver, domain: str, route: MailRoute) -> None:
    assert await route_of(resolver, domain) is route


async def test_a_failing_name_server_makes_an_address_unknown_and_free(
    pool: asyncpg.Pool, account: TestAccount, dns: Responder
) -> None:
    dns.behave("servfail.test", DnsBehaviour(rcode="SERVFAIL"))
    resolver = Resolver((HostPort(*dns.address),))
    found = await check(pool, resolver, account, "ann@servfail.test", "ann@good.test")
    await resolver.close()

    assert [(row.verdict, row.reason) for row in found.results] == [
        (AddressVerdict.UNKNOWN, CheckReason.DNS), (AddressVerdict.DELIVERABLE, None),
    ]  # fmt: skip
    checks = found.results[0].checks
    assert (checks.syntax, checks.domain, checks.mx, checks.null_mx) == (True, None, None, None)
    assert (found.charged, await used(pool, account)) == (1, 1)


async def test_all_dns_of_a_call_has_one_time_limit(pool: asyncpg.Pool, account: TestAccount) -> None:
    silent, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    resolver = Resolver((HostPort(*silent.get_extra_info("sockname")),))
    began = time.monotonic()
    found = await routes_of(resolver, [f"d{number}.test" for number in range(100)], timeout_s=0.5)
    await resolver.close()
    silent.close()

    assert set(found.values()) == {MailRoute.UNREACHABLE}
    assert time.monotonic() - began < 20  # one after the other, they would take 50 s


async def test_results_come_in_order_and_the_same_address_is_charged_once(
    pool: asyncpg.Pool, resolver: Resolver, account: TestAccount
) -> None:
    found = await check(
        pool, resolver, account, "ann@good.test", "no address", "ANN@Good.test", "info@good.test", "ann@null.test",
        "ann@nowhere.test", "ann@text.test",
    )  # fmt: skip

    assert [(row.verdict.value, row.reason and row.reason.value) for row in found.results] == [
        ("deliverable", None), ("undeliverable", "syntax"), ("deliverable", None), ("risky", "role"),
        ("undeliverable", "null_mx"), ("undeliverable", "no_domain"), ("undeliverable", "no_mail_server"),
    ]  # fmt: skip
    assert found.results[2].normalized == "ANN@good.test"
    assert (found.charged, await used(pool, account)) == (6, 6)


async def test_an_international_domain_is_asked_for_in_ascii(
    pool: asyncpg.Pool, resolver: Resolver, account: TestAccount
) -> None:
    found = await one(pool, resolver, account, "ann@münchen.test")

    assert (found.normalized, found.verdict) == ("ann@xn--mnchen-3ya.test", AddressVerdict.DELIVERABLE)


@pytest.mark.parametrize(
    ("reason", "verdict", "said"),
    [
        ("bounce", "undeliverable", "suppressed"),
        ("complaint", "undeliverable", "suppressed"),
        ("manual", "undeliverable", "suppressed"),
        ("unsubscribe", "risky", "unsubscribed"),
    ],
)
async def test_an_address_that_only_unsubscribed_still_gets_transactional_mail(
    pool: asyncpg.Pool, resolver: Resolver, account: TestAccount, reason: str, verdict: str, said: str
) -> None:
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'ann@good.test', $2)", account.id, reason
    )

    found = await one(pool, resolver, account, "ann@good.test")

    assert (found.verdict, found.reason, found.checks.suppressed) == (verdict, said, said == "suppressed")


async def test_only_the_accounts_own_suppressions_count(
    pool: asyncpg.Pool, resolver: Resolver, account: TestAccount
) -> None:
    stranger = await make_account(pool)
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'gone@good.test', 'bounce')", stranger.id
    )
    assert (await one(pool, resolver, account, "gone@good.test")).checks.suppressed is False
    found = await one(pool, resolver, stranger, "Gone@good.test")
    assert (found.verdict, found.reason) == (AddressVerdict.UNDELIVERABLE, CheckReason.SUPPRESSED)


def test_relays_are_not_disposable_and_throw_away_mailboxes_are() -> None:
    for relay in ("privaterelay.appleid.com", "mozmail.com", "duck.com", "x.anonaddy.com", "passmail.net"):
        assert (domain_lists.is_relay(relay), domain_lists.is_disposable(relay)) == (True, False)
    for provider in ("mailinator.com", "sub.mailinator.com", "guerrillamail.com"):
        assert (domain_lists.is_relay(provider), domain_lists.is_disposable(provider)) == (False, True)
    assert not domain_lists.is_disposable("com")
    assert not domain_lists.is_disposable("gmail.com")


@pytest.mark.parametrize(("local", "role"), [("Info", True), ("support+x", True), ("ann", False), ("infoann", False)])
def test_role_names_are_recognised(local: str, role: bool) -> None:
    assert domain_lists.is_role(local) is role


def test_twenty_typing_errors_are_suggested_and_never_applied() -> None:
    assert len(domain_lists.TYPING_ERRORS) == 20
    found = rules.judge(rules.parsed("ann@gmial.com"), {"gmial.com": MailRoute.NO_DOMAIN}, {})
    assert (found.normalized, found.suggestion) == ("ann@gmial.com", "ann@gmail.com")
    assert rules.judge(rules.parsed("a@b.test"), {"b.test": MailRoute.SERVER}, {}).suggestion is None


async def test_more_than_the_month_has_left_is_refused_whole(
    pool: asyncpg.Pool, resolver: Resolver, dns: Responder
) -> None:
    parent, child = await make_account(pool, plan="free"), await make_account(pool, plan="free")
    await pool.execute("UPDATE accounts SET parent_id = $2 WHERE id = $1", child.id, parent.id)
    limit, month = CAPS[Plan.FREE].monthly_address_checks, clock.first_of_month(clock.now().date())
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'address_checks', $2, $3)", parent.id, month, limit - 5)

    with pytest.raises(Refusal) as refused:
        await check(pool, resolver, child, *[f"u{number}@good.test" for number in range(6)])
    assert refused.value.fields == {"resource": "address_checks", "limit": limit, "used": limit - 5}
    assert refused.value.retry_after_s
    calls = [check(pool, resolver, one, f"{number}@good.test") for number, one in enumerate([parent, child] * 5)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(found, CheckedBatch) for found in results) == 5
    assert (await used(pool, parent), await used(pool, child)) == (limit, 0)


async def test_the_reservation_of_a_dead_process_is_given_back(pool: asyncpg.Pool, account: TestAccount) -> None:
    month = clock.first_of_month(clock.now().date())
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'address_checks', $2, 10)", account.id, month)
    await pool.execute(
        "INSERT INTO address_check_reservations VALUES ($1, $2, $3, 7, now())", ids.uuid7(), account.id, month
    )

    await asyncio.gather(service.give_back_expired(pool), service.give_back_expired(pool))
    assert await used(pool, account) == 3


async def test_a_call_that_is_abandoned_charges_nothing(pool: asyncpg.Pool, account: TestAccount) -> None:
    silent, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    resolver = Resolver((HostPort(*silent.get_extra_info("sockname")),))
    task = asyncio.create_task(check(pool, resolver, account, "ann@slow.test"))
    while not await used(pool, account):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await resolver.close()
    silent.close()

    assert await used(pool, account) == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400), ({"address": "a@b.test", "addresses": ["a@b.test"]}, 400), ({"addresses": []}, 400),
        ({"addresses": ["a@b.test"] * 101}, 400), ({"address": 5}, 400), ({"address": "x"}, 200),
    ],
)  # fmt: skip
async def test_a_call_has_one_address_or_a_hundred(
    api: Api, account: TestAccount, body: dict[str, Any], status: int
) -> None:
    answer = await api.post("/v1/address-checks", account.token, body)

    assert answer.status == status
    if status == 200:
        assert answer.json == {
            "data": [
                {
                    "address": "x", "normalized": None, "verdict": "undeliverable", "reason": "syntax",
                    "checks": {
                        "syntax": False, "domain": None, "mx": None, "nullMx": None, "disposable": None, "role": None,
                        "suppressed": None, "relay": None,
                    },
                    "suggestion": None,
                }
            ],
            "charged": 1,
        }  # fmt: skip
