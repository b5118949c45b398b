"""`GET /v1/analytics/providers`: how mail arrives at Gmail, Microsoft and the others."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.receiving.analytics import delivery, providers
from engine.receiving.analytics.mailbox_providers import NAMES, MailboxProvider, provider_of
from engine.receiving.reports import read_reports
from engine.sending.complaint import complain
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Api
from tests.harness.report_mails import add, failed, mail
from tests.harness.settling import settle
from tests.receiving.test_analytics import send, took
from tests.receiving.test_late_bounce import token

GMAIL = "gmail-smtp-in.l.google.com"
WORKSPACE = "aspmx.l.google.com"
MICROSOFT = "contoso-com.mail.protection.outlook.com"
LATER = timedelta(hours=1)
NOTHING = {
    "settled": 0, "delivered": 0, "bounced": 0, "failed": 0, "complained": 0, "deliveryRate": None, "p50Ms": None,
    "samples": 0,
}  # fmt: skip


async def read(api: Api, account: TestAccount, token: str | None = None) -> dict[str, Any]:
    answer = await api.get("/v1/analytics/providers", token or account.token)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def rows(api: Api, account: TestAccount, token: str | None = None) -> dict[str, Any]:
    """Return the rows by provider."""
    return {row["provider"]: row for row in (await read(api, account, token))["data"]}


@pytest.mark.parametrize(
    ("server", "domain", "provider"),
    [
        (GMAIL, "gmail.com", "google"),
        (WORKSPACE, "company.example", "google"),
        ("ALT1.ASPMX.L.GOOGLE.COM.", "company.example", "google"),
        (MICROSOFT, "contoso.com", "microsoft"),
        ("outlook-com.olc.protection.outlook.com", "outlook.com", "microsoft"),
        ("mta7.am0.yahoodns.net", "aol.com", "yahoo"),
        ("mx01.mail.icloud.com", "me.com", "apple"),
        ("mx.people.test", "people.test", "other"),
        ("notgoogle.com", "people.test", "other"),
        ("mx.relay.test", "gmail.com", "google"),  # a relay, or the local sink
        (None, "gmail.com", "google"),
        (None, "people.test", "other"),
    ],
)
def test_the_mail_server_tells_the_provider_and_the_domain_where_the_server_is_unknown(
    server: str | None, domain: str, provider: str
) -> None:
    assert provider_of(server, domain) == provider


def test_every_provider_has_a_name() -> None:
    assert set(NAMES) == set(MailboxProvider)


async def test_an_account_without_mail_has_no_rows(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    found = await read(api, account)
    today = clock.now().date()

    assert found["data"] == []
    assert found["days"] == 6  # the window of the plan is 7 days, today included
    assert (found["from"], found["until"]) == (f"{today}T00:00:00.000Z", f"{today + timedelta(days=1)}T00:00:00.000Z")


async def test_outcomes_and_times_count_at_the_provider_whose_server_answered(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for to, mx, time_ms in (("ann@gmail.com", GMAIL, 1000), ("bob@company.example", WORKSPACE, 3000)):
        message = await send(api, account, to)
        await settle(pool, message, mx=mx)
        await took(pool, message, time_ms)
    bounced = await send(api, account, "nobody@gmail.com")
    await settle(pool, bounced, ("nobody@gmail.com", 550, "5.1.1 no such user"), mx=GMAIL)
    gone = await send(api, account, "ann@contoso.com")
    await settle(pool, gone, ("ann@contoso.com", 451, "4.7.500 busy"), mx=MICROSOFT)  # its last attempt

    found = await rows(api, account)
    assert list(found) == ["google", "microsoft"]
    assert found["google"]["today"] == {
        "settled": 3, "delivered": 2, "bounced": 1, "failed": 0, "complained": 0, "deliveryRate": 0.666667,
        "p50Ms": pytest.approx(1000, rel=0.01), "samples": 2,
    }  # fmt: skip
    assert (found["google"]["name"], found["google"]["before"], found["google"]["deferred"]) == ("Gmail", NOTHING, None)
    assert (found["microsoft"]["today"]["failed"], found["microsoft"]["today"]["deliveryRate"]) == (1, 0.0)


async def test_the_days_before_are_summed_apart_from_today(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    message = await send(api, account, "ann@gmail.com")
    await settle(pool, message, mx=GMAIL)
    assert await delivery.count_ahead(pool, everything=True)
    for days, delivered in ((1, 10), (7, 20), (8, 40)):
        await pool.execute(
            "INSERT INTO delivery_providers SELECT account_id, day - $2::int, provider, stream, from_domain, $3, 0, 0,"
            " 0, '' FROM delivery_providers WHERE account_id = $1 AND day = $4",
            account.id, days, delivered, clock.now().date(),
        )  # fmt: skip
    (row,) = (await read(api, account))["data"]

    assert (row["today"]["delivered"], row["before"]["delivered"]) == (1, 30)


async def test_a_late_bounce_and_a_complaint_move_the_delivery_at_its_provider(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    late, reported, _ = [await send(api, account, "ann@company.example") for _ in range(3)]
    for message in (late, reported):
        await settle(pool, message, mx=WORKSPACE)
    await read(api, account)  # counts both as delivered
    await add(pool, mail(failed("ann@company.example"), local=token(ids.parse_id(ids.Kind.MESSAGE, late))))
    await read_reports.read_due(pool, settings)
    await complain(pool, ids.parse_id(ids.Kind.MESSAGE, reported), 0, at=clock.now())
    google = (await rows(api, account))["google"]["today"]

    assert (google["delivered"], google["bounced"], google["complained"]) == (0, 1, 1)
    assert google["samples"] == 1


async def test_deferred_mail_is_told_with_its_reason_and_no_address(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for to in ("ann@contoso.com", "bob@contoso.com", "ann@outlook.com"):
        message = await send(api, account, to)
        await settle(
            pool,
            message,
            (to, 451, f"4.7.500 <{to}> Server busy. Please try again later"),
            again_after=LATER,
            mx=MICROSOFT,
        )
    await send(api, account, "ann@gmail.com")  # waits for its first attempt
    answer = await api.get("/v1/analytics/providers", account.token)
    (row,) = answer.json["data"]

    assert row["provider"] == "microsoft"
    assert row["deferred"] | {"since": None, "class": None} == {
        "messages": 3, "since": None, "domain": "contoso.com", "class": None, "smtpCode": 451,
        "enhancedCode": "4.7.500",
    }  # fmt: skip
    assert row["deferred"]["class"]
    assert clock.parse_iso(row["deferred"]["since"]) <= clock.now()
    assert b"ann@" not in answer.body


async def test_domains_beyond_the_listed_ones_count_as_deferred_at_others(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    everywhere = [f"ann@d{number:02}.test" for number in range(providers.MAX_DOMAINS + 1)]
    for to in (everywhere, everywhere[1:]):
        later = [(one, 450, "4.2.0 later") for one in to]
        await settle(pool, await send(api, account, *to), *later, again_after=LATER, mx=MICROSOFT)
    found = await rows(api, account)

    assert found["microsoft"]["deferred"]["messages"] == 2 * providers.MAX_DOMAINS
    assert (found["other"]["deferred"]["messages"], found["other"]["deferred"]["smtpCode"]) == (1, None)


async def test_keys_limited_to_a_stream_or_a_domain_see_its_mail_only(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await settle(pool, await send(api, account, "ann@gmail.com"), mx=GMAIL)
    late = await send(api, account, "ann@contoso.com")
    await settle(pool, late, ("ann@contoso.com", 450, "4.2.0 later"), again_after=LATER, mx=MICROSOFT)
    news = await add_key(pool, account.id, streams=["news"])
    own = await add_key(pool, account.id, streams=["transactional"])
    elsewhere = await add_key(pool, account.id, domains=["elsewhere.test"])

    assert await rows(api, account, news) == await rows(api, account, elsewhere) == {}
    assert set(await rows(api, account, own)) == {"google", "microsoft"}


async def test_other_accounts_see_nothing_of_it(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await settle(pool, await send(api, account, "ann@gmail.com"), mx=GMAIL)
    late = await send(api, account, "ann@contoso.com")
    await settle(pool, late, ("ann@contoso.com", 450, "4.2.0 later"), again_after=LATER, mx=MICROSOFT)

    assert await rows(api, other) == {}


async def test_old_counts_are_forgotten(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await pool.execute(
        "INSERT INTO delivery_providers VALUES ($1, '2020-01-01', 'google', 'transactional', 'x.test', 1, 0, 0, 0, '')",
        account.id,
    )
    await delivery.forget(pool, clock.now().date())

    assert not await pool.fetchval("SELECT count(*) FROM delivery_providers WHERE account_id = $1", account.id)
