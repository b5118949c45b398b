"""`GET /v1/analytics/waits`: why deliveries waited, counted from the account log."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from engine.delivery.waits import WaitCause
from engine.receiving.analytics import delivery
from engine.receiving.analytics.types import CountedEvent
from engine.receiving.analytics.wait_rules import WaitCounter
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Api
from tests.harness.settling import settle
from tests.receiving.test_analytics import send

GMAIL = "gmail-smtp-in.l.google.com"
NONE = dict.fromkeys(
    ("schedule", "queue", "siteLimits", "otherAccounts", "ownMail", "connection", "transaction", "retry"), 0
)


async def read(api: Api, account: TestAccount, token: str | None = None, **params: str) -> dict[str, Any]:
    answer = await api.get("/v1/analytics/waits", token or account.token, params=params)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def waited(
    api: Api, pool: asyncpg.Pool, account: TestAccount, *, mx: str = GMAIL, fair_share: float = 1.0, **ms: int
) -> str:
    """Send a message and settle it with waiting times."""
    message = await send(api, account, "ann@people.test")
    waits = {WaitCause(name): value for name, value in ms.items()}
    await settle(pool, message, mx=mx, waits=waits, fair_share=fair_share)
    return message


async def test_waits_are_summed_by_provider_and_in_total(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await waited(api, pool, account, queue=5, other_accounts=200, connection=40, fair_share=0.5)
    await waited(api, pool, account, queue=7, own_mail=30)
    await waited(api, pool, account, mx="mx.people.test", site_limits=9, retry=60_000, transaction=3, schedule=1)
    found = await read(api, account)

    assert found["groupBy"] == "provider"
    assert found["total"] == {
        "attempts": 3,
        "causes": {
            "schedule": 1, "queue": 12, "siteLimits": 9, "otherAccounts": 200, "ownMail": 30, "connection": 40,
            "transaction": 3, "retry": 60_000,
        },
        "fairShare": 0.833,
        "otherAccountsP95Ms": 200,
    }  # fmt: skip
    google, other = found["data"]
    assert (google["provider"], google["name"], google["attempts"], google["fairShare"]) == ("google", "Gmail", 2, 0.75)
    assert google["causes"] == NONE | {"queue": 12, "otherAccounts": 200, "ownMail": 30, "connection": 40}
    assert (other["provider"], other["otherAccountsP95Ms"]) == ("other", 0)


async def test_waits_by_hour_and_day_begin_with_it_in_utc(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    before = clock.now()
    await waited(api, pool, account, queue=5)
    after = clock.now()
    [hour] = (await read(api, account, groupBy="hour"))["data"]
    [day] = (await read(api, account, groupBy="day", days="90"))["data"]

    assert hour["begin"] in {f"{at:%Y-%m-%dT%H}:00:00.000Z" for at in (before, after)}
    assert day["begin"] in {f"{at:%Y-%m-%d}T00:00:00.000Z" for at in (before, after)}
    assert "provider" not in hour
    assert hour["causes"] == day["causes"] == NONE | {"queue": 5}


async def test_filters_leave_other_mail_out(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await waited(api, pool, account, queue=5)
    await waited(api, pool, account, mx="mx.people.test", queue=7)

    assert (await read(api, account, provider="google"))["total"]["causes"]["queue"] == 5
    assert (await read(api, account, stream="transactional"))["total"]["attempts"] == 2
    assert (await read(api, account, stream="news"))["total"]["attempts"] == 0
    limited = await add_key(pool, account.id, scopes=["analytics:read"], domains=["other.test"])
    assert (await read(api, account, limited))["total"]["attempts"] == 0


async def test_an_account_without_attempts_has_null_and_never_zero(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await waited(api, pool, other, queue=5)
    found = await read(api, account)

    assert found["data"] == []
    assert found["total"] == {"attempts": 0, "causes": NONE, "fairShare": None, "otherAccountsP95Ms": None}


async def test_attempts_of_a_version_that_did_not_measure_are_left_out(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await settle(pool, await send(api, account, "ann@people.test"))
    assert (await read(api, account))["total"]["attempts"] == 0


@pytest.mark.parametrize(
    ("params", "status", "field"),
    [
        ({"groupBy": "hour", "days": "8"}, 400, "days"),
        ({"groupBy": "week"}, 400, "groupBy"),
        ({"days": "0"}, 400, "days"),
    ],
)
async def test_a_wrong_query_names_its_parameter(
    api: Api, pool: asyncpg.Pool, params: dict[str, str], status: int, field: str
) -> None:
    account = await make_account(pool)
    answer = await api.get("/v1/analytics/waits", account.token, params=params)
    assert (answer.status, answer.error["field"]) == (status, field)


async def test_more_days_than_the_plan_has_are_refused(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    answer = await api.get("/v1/analytics/waits", account.token, params={"days": "30"})
    assert answer.error["type"] == "plan_limit_reached"


async def test_old_sums_are_forgotten_with_the_other_counts(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await waited(api, pool, account, queue=5)
    await delivery.count_rest(pool, account.id)
    await delivery.forget(pool, clock.now().date())
    assert await pool.fetchval("SELECT count(*) FROM delivery_waits WHERE account_id = $1", account.id) == 1
    await pool.execute("UPDATE delivery_waits SET hour = hour - interval '3 days' WHERE account_id = $1", account.id)
    await delivery.forget(pool, clock.now().date() - timedelta(days=1))
    assert await pool.fetchval("SELECT count(*) FROM delivery_waits WHERE account_id = $1", account.id) == 0


def test_texts_of_mail_servers_never_count_as_waits() -> None:
    said = '"conversation":[{"reply":"250 \\"waits\\":{\\"queue\\":9}"}]'
    for payload in (f'{{"detail":{{{said}}}}}', ""):
        counter = WaitCounter()
        counter.add(CountedEvent(1, "attempted", ids.uuid7(), clock.now(), payload), "other", "s", "x.test")
        assert counter.counts() == []


# -- on a message ------------------------------------------------------------------------------


async def test_a_message_shows_where_the_time_of_its_attempt_went(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    message = await waited(api, pool, account, connection=300, other_accounts=100, queue=20, fair_share=0.5)
    found = (await api.get(f"/v1/messages/{message}", account.token)).json
    [one] = found["waits"]
    attempted = next(event for event in found["waybill"] if event["type"] == "attempted")

    assert one["eventId"] == attempted["id"]
    assert one["until"] == attempted["createdAt"]
    assert (one["totalMs"], one["domain"], one["fairShare"]) == (420, None, 0.5)
    assert one["causes"] == NONE | {"connection": 300, "otherAccounts": 100, "queue": 20}
    assert one["text"] == "Took 0.4 s, of which 0.3 s for the connection and 0.1 s for other accounts."
