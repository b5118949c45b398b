"""`GET /v1/me`: the account and what its next send will be held to."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from engine.areas.account import allowance
from engine.base import clock
from engine.base.plans import CAPS, DAILY_LADDER, Plan
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api


async def sending(api: Api, account: TestAccount) -> dict[str, int]:
    answer = await api.get("/v1/me", account.token)
    assert answer.status == 200, answer
    found: dict[str, int] = answer.json["sending"]
    return found


async def stand(pool: asyncpg.Pool, account: TestAccount, day: datetime, *, sent: int, rung: int, month: int) -> None:
    """Put the account's head where a send on `day` would have left it."""
    await pool.execute(
        "UPDATE account_heads SET day = $2, month = $3, sent_today = $4, rung = $5, sent_this_month = $6 "
        "WHERE account_id = $1",
        account.id, day.date(), clock.first_of_month(day.date()), sent, rung, month,
    )  # fmt: skip


async def test_me_tells_account_plan_and_allowance(api: Api, pool: asyncpg.Pool) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    account = await make_account(pool, daily_cap=None)
    found = (await api.get("/v1/me", account.token)).json

    assert before <= clock.parse_iso(found.pop("createdAt")) <= datetime.now(UTC)
    assert found == {
        "id": account.public_id,
        "name": f"Account {account.domain}",
        "plan": "growth",
        "status": "active",
        "sending": {
            "dailyLimit": 50,
            "sentToday": 0,
            "remainingToday": 50,
            "warmupTier": 0,
            "monthlyLimit": 300_000,
            "sentThisMonth": 0,
            "remainingThisMonth": 300_000,
        },
    }


async def test_accepted_messages_count_at_once_and_refusals_do_not(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=3)
    statuses = [(await api.post("/v1/emails", account.token, account.email())).status for _ in range(5)]

    assert statuses == [202, 202, 202, 429, 429]
    found = await sending(api, account)
    assert (found["dailyLimit"], found["sentToday"], found["remainingToday"]) == (3, 3, 0)
    assert (found["sentThisMonth"], found["remainingThisMonth"]) == (3, 300_000 - 3)


@pytest.mark.parametrize("plan", list(Plan))
async def test_the_monthly_limit_is_the_plans(api: Api, pool: asyncpg.Pool, plan: Plan) -> None:
    account = await make_account(pool, plan=plan.value)

    assert (await sending(api, account))["monthlyLimit"] == CAPS[plan].monthly_emails


async def test_an_agreement_stands_above_ladder_and_plan(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free", daily_cap=7_000, monthly_cap=9_000)
    found = await sending(api, account)

    assert (found["dailyLimit"], found["monthlyLimit"]) == (7_000, 9_000)


async def test_a_lowered_cap_leaves_nothing_never_less(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=10, monthly_cap=10)
    await stand(pool, account, datetime.now(UTC), sent=20, rung=0, month=20)
    found = await sending(api, account)

    assert (found["remainingToday"], found["remainingThisMonth"]) == (0, 0)


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


async def test_a_new_day_starts_at_0_and_keeps_the_months_count(pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=None)
    await stand(pool, account, NOON - timedelta(days=1), sent=10, rung=3, month=400)
    async with pool.acquire() as connection:
        left = await allowance.read(connection, account.id, NOON)

    assert (left.sent_today, left.rung, left.daily_limit) == (0, 3, DAILY_LADDER[3])
    assert left.sent_this_month == 400


async def test_a_new_month_starts_at_0(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await stand(pool, account, datetime(2026, 10, 31, tzinfo=UTC), sent=10, rung=3, month=400)
    async with pool.acquire() as connection:
        left = await allowance.read(connection, account.id, datetime(2026, 11, 1, tzinfo=UTC))

    assert (left.sent_today, left.sent_this_month) == (0, 0)


@pytest.mark.parametrize(
    ("sent", "bounced", "complained", "rung"),
    [(800, 0, 0, 4), (799, 0, 0, 3), (1000, 50, 1, 4), (1000, 51, 0, 3), (1000, 0, 4, 2), (1000, 101, 0, 2)],
)
async def test_after_midnight_the_rung_is_the_one_the_first_send_will_find(
    pool: asyncpg.Pool, sent: int, bounced: int, complained: int, rung: int
) -> None:
    account = await make_account(pool, daily_cap=None)
    yesterday = NOON - timedelta(days=1)
    await stand(pool, account, yesterday, sent=sent, rung=3, month=sent)
    await pool.execute(
        "INSERT INTO account_days (account_id, day, bounced, complained) VALUES ($1, $2, $3, $4)",
        account.id, yesterday.date(), bounced, complained,
    )  # fmt: skip
    async with pool.acquire() as connection:
        left = await allowance.read(connection, account.id, NOON)
        held = await allowance.read(connection, account.id, NOON + timedelta(days=1))

    assert (left.rung, left.daily_limit, left.sent_today) == (rung, DAILY_LADDER[rung], 0)
    assert held.rung == 3  # an idle day in between: nothing to review


async def test_looking_changes_nothing(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=None)
    await stand(pool, account, datetime.now(UTC) - timedelta(days=1), sent=50, rung=0, month=50)
    before = await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert (await sending(api, account))["warmupTier"] == 1

    assert await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id) == before


async def test_me_needs_its_scope_and_takes_no_parameters(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, scopes=["emails:send"])
    answer = await api.get("/v1/me", account.token)
    assert (answer.status, answer.error["type"], answer.error["scope"]) == (403, "forbidden", "account:read")

    reader = await make_account(pool, scopes=["account:read"])
    assert (await api.get("/v1/me?verbose=1", reader.token)).status == 400
    assert (await api.get("/v1/me", reader.token)).json["id"] == reader.public_id
