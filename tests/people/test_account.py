"""`GET /v1/me`: the account and what its next send will be held to."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from engine.base import clock
from engine.base.plans import CAPS, DAILY_ALLOWANCES, Plan
from engine.people.account import allowance
from tests.harness.accounts import TestAccount, add_domain, add_key, add_stream, make_account, revoke_key
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
        "parentId": None,
        "retentionDays": 365,
        "scheduleDays": 7,
        "analyticsDays": 90,
        "requestsPerSecond": 200,
        "limits": [
            {"resource": "api_keys", "limit": 40, "used": 1},
            {"resource": "domains", "limit": None, "used": 1},
            {"resource": "streams", "limit": 10, "used": 1},
            {"resource": "templates", "limit": 100, "used": 0},
            {"resource": "layouts", "limit": 100, "used": 0},
            {"resource": "webhooks", "limit": 10, "used": 0},
            {"resource": "seats", "limit": 10, "used": 0},
            {"resource": "sub_accounts", "limit": 5, "used": 0},
            {"resource": "scheduled_messages", "limit": 300_000, "used": 0},
            {"resource": "inbound_addresses", "limit": 50, "used": 0},
            {"resource": "received_messages", "limit": 200_000, "used": 0},
            {"resource": "contacts", "limit": 50_000, "used": 0},
            {"resource": "lists", "limit": 50, "used": 0},
            {"resource": "segments", "limit": 100, "used": 0},
            {"resource": "verifications", "limit": 25_000, "used": 0},
            {"resource": "address_checks", "limit": 50_000, "used": 0},
        ],
    }


async def test_used_counts_what_the_plan_still_counts(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await revoke_key(pool, account.id, await add_key(pool, account.id))
    await add_key(pool, account.id)
    await add_domain(pool, account.id, f"two.{account.domain}")
    await add_stream(pool, account.id, "receipts")
    used = {one["resource"]: one["used"] for one in (await api.get("/v1/me", account.token)).json["limits"]}

    assert used == {
        "api_keys": 2, "domains": 2, "streams": 2, "templates": 0, "layouts": 0, "webhooks": 0,
        "seats": 0,        "sub_accounts": 0, "scheduled_messages": 0, "inbound_addresses": 0, "received_messages": 0,
        "contacts": 0, "lists": 0, "segments": 0,
        "verifications": 0, "address_checks": 0,
    }  # fmt: skip
    assert (await api.get("/v1/me", other.token)).json["limits"][0]["used"] == 1


@pytest.mark.parametrize("plan", list(Plan))
async def test_limits_are_the_plans(api: Api, pool: asyncpg.Pool, plan: Plan) -> None:
    account = await make_account(pool, plan=plan.value)
    found = (await api.get("/v1/me", account.token)).json
    limits = {one["resource"]: one["limit"] for one in found["limits"]}

    assert limits["api_keys"] == CAPS[plan].api_keys
    assert limits["domains"] == CAPS[plan].sending_domains
    assert limits["webhooks"] == CAPS[plan].webhooks
    assert (found["retentionDays"], found["scheduleDays"]) == (CAPS[plan].retention_days, CAPS[plan].schedule_days)


@pytest.mark.parametrize(("agreed", "days"), [(None, 30), (10, 30), (31, 31), (3_650, 3_650)])
async def test_an_agreement_only_lengthens_the_record(
    api: Api, pool: asyncpg.Pool, agreed: int | None, days: int
) -> None:
    account = await make_account(pool, plan="free")
    await pool.execute("UPDATE accounts SET retention_days = $2 WHERE id = $1", account.id, agreed)

    assert (await api.get("/v1/me", account.token)).json["retentionDays"] == days


async def test_a_sub_account_names_its_parent(api: Api, pool: asyncpg.Pool) -> None:
    parent, account = await make_account(pool), await make_account(pool)
    await pool.execute("UPDATE accounts SET parent_id = $2 WHERE id = $1", account.id, parent.id)

    assert (await api.get("/v1/me", account.token)).json["parentId"] == parent.public_id


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

    assert (left.sent_today, left.rung, left.daily_limit) == (0, 3, DAILY_ALLOWANCES[3])
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
        account.id, yesterday.date(), bounced + 7, complained + 5,
    )  # fmt: skip
    await pool.execute("INSERT INTO simulated_days VALUES ($1, $2, 0, 12, 7, 5)", account.id, yesterday.date())
    async with pool.acquire() as connection:
        left = await allowance.read(connection, account.id, NOON)
        held = await allowance.read(connection, account.id, NOON + timedelta(days=1))

    assert (left.rung, left.daily_limit, left.sent_today) == (rung, DAILY_ALLOWANCES[rung], 0)
    assert held.rung == 3  # an idle day in between: nothing to review


async def test_looking_changes_nothing(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=None)
    await stand(pool, account, datetime.now(UTC) - timedelta(days=1), sent=50, rung=0, month=50)
    before = await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert (await sending(api, account))["warmupTier"] == 1

    assert await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id) == before


async def test_a_sub_account_is_counted_above_and_has_none_below(api: Api, pool: asyncpg.Pool) -> None:
    parent, child = await make_account(pool), await make_account(pool)
    await pool.execute("UPDATE accounts SET retention_days = 400 WHERE id = $1", parent.id)
    await pool.execute("UPDATE accounts SET parent_id = $1 WHERE id = $2", parent.id, child.id)
    above = (await api.get("/v1/me", parent.token)).json
    below = (await api.get("/v1/me", child.token)).json

    assert {"resource": "sub_accounts", "limit": 5, "used": 1} in above["limits"]
    assert {"resource": "sub_accounts", "limit": 0, "used": 0} in below["limits"]
    assert below["retentionDays"] == 400
