"""Quotas of accounts and the platform, counted exactly under concurrent sends."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from engine.base.errors import ErrorType, Refusal
from engine.base.plans import DAILY_ALLOWANCES
from engine.base.settings import Settings
from tests.harness.accounts import TestAccount, make_account
from tests.harness.sending import Process, accepted, head_of, process, refused, stored, suppress

NewDatabase = Callable[[], Awaitable[str]]


async def stands_at(
    pool: asyncpg.Pool,
    account: TestAccount,
    *,
    rung: int,
    days_ago: int,
    sent: int,
    bounced: int = 0,
    complained: int = 0,
    simulated: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> None:
    """As if the account had last sent some days ago; of it `simulated`: messages, and recipients settled, bounced and
    complained."""
    day = datetime.now(UTC).date() - timedelta(days=days_ago)
    await pool.execute(
        "UPDATE account_heads SET rung = $2, day = $3, sent_today = $4 WHERE account_id = $1",
        account.id,
        rung,
        day,
        sent,
    )
    await pool.execute(
        "INSERT INTO account_days (account_id, day, bounced, complained) VALUES ($1, $2, $3, $4)",
        account.id, day, bounced, complained,
    )  # fmt: skip
    await pool.execute("INSERT INTO simulated_days VALUES ($1, $2, $3, $4, $5, $6)", account.id, day, *simulated)


# -- counting ---------------------------------------------------------------------------------


async def test_at_cap_less_one_a_thousand_parallel_sends_give_one_more(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    account = await make_account(pool, daily_cap=5)
    for _ in range(4):
        await doors[0].send(account)

    results = list(await asyncio.gather(*[doors[turn % 2].try_send(account) for turn in range(1000)]))

    assert len(accepted(results)) == 1
    assert {refusal.kind for refusal in refused(results)} == {ErrorType.DAILY_LIMIT_REACHED}
    assert all(refusal.fields == {"limit": 5, "sentToday": 5} for refusal in refused(results))
    assert all(0 < (refusal.retry_after_s or 0) <= 86_400 for refusal in refused(results))
    found = await head_of(pool, account)
    assert (found["sent_today"], found["sent_this_month"], found["seq"]) == (5, 5, 5)
    assert await stored(pool, account) == 5


async def test_the_monthly_allowance_is_exact(doors: tuple[Process, Process], pool: asyncpg.Pool) -> None:
    account = await make_account(pool, monthly_cap=30)

    results = list(await asyncio.gather(*[doors[turn % 2].try_send(account) for turn in range(100)]))

    assert len(accepted(results)) == 30
    assert {refusal.kind for refusal in refused(results)} == {ErrorType.MONTHLY_LIMIT_REACHED}
    assert refused(results)[0].fields == {"limit": 30, "sentThisMonth": 30}
    assert (await head_of(pool, account))["sent_this_month"] == 30


async def test_a_refusal_is_never_counted(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await suppress(pool, account, "gone@people.test")
    await door.send(account)

    for fields in (
        {"to": "gone@people.test"}, {"to": "nonsense"}, {"from": "a@elsewhere.test"}, {"stream": "none"}, {"text": None}
    ):  # fmt: skip
        assert isinstance(await door.try_send(account, **fields), Refusal)

    found = await head_of(pool, account)
    assert (found["sent_today"], found["sent_this_month"]) == (1, 1)


async def test_a_message_to_many_counts_once(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await door.send(account, to=[f"p{number}@people.test" for number in range(50)])

    assert (await head_of(pool, account))["sent_today"] == 1


async def test_the_platforms_ceiling_is_exact(settings: Settings, new_database: NewDatabase) -> None:
    own = replace(settings, database_url=await new_database(), platform_daily_ceiling=20)
    async with process(own) as door:
        accounts = [await make_account(door.pool) for _ in range(3)]
        results = list(await asyncio.gather(*[door.try_send(accounts[turn % 3]) for turn in range(90)]))

        assert len(accepted(results)) == 20
        assert {refusal.kind for refusal in refused(results)} == {ErrorType.PLATFORM_PAUSED}
        assert sum([(await head_of(door.pool, account))["sent_today"] for account in accounts]) == 20
        assert await door.pool.fetchval("SELECT leased FROM platform_days") == 20


async def test_two_processes_share_the_ceiling_and_never_pass_it(settings: Settings, new_database: NewDatabase) -> None:
    own = replace(settings, database_url=await new_database(), platform_daily_ceiling=300)
    async with process(own) as one, process(own) as two:
        account = await make_account(one.pool)
        results = []
        for _ in range(50):  # by and by, so that both lease in turns
            results += await asyncio.gather(*[door.try_send(account) for door in (one, two) for _ in range(5)])

        count = len(accepted(results))
        assert 300 * 0.85 < count <= 300  # what little is missing was leased by one process and left unused
        assert await stored(one.pool, account) == count
        assert await one.pool.fetchval("SELECT leased FROM platform_days") <= 300


async def test_what_a_stopped_process_did_not_use_of_the_ceiling_comes_back(
    settings: Settings, new_database: NewDatabase
) -> None:
    own = replace(settings, database_url=await new_database(), platform_daily_ceiling=100_000)
    async with process(own) as door:
        account = await make_account(door.pool)
        await door.send(account)
        assert await door.pool.fetchval("SELECT leased FROM platform_days") > 1
        await door.acceptor.drain()

        assert await door.pool.fetchval("SELECT leased FROM platform_days") == 1


# -- the ladder -------------------------------------------------------------------------------

REVIEWS = [
    ("four fifths used and clean", {"rung": 1, "days_ago": 1, "sent": 160}, 2),
    ("less than four fifths used", {"rung": 1, "days_ago": 1, "sent": 159}, 1),
    ("used up: still one rung only", {"rung": 1, "days_ago": 1, "sent": 5_000}, 2),
    ("too many bounces to rise", {"rung": 1, "days_ago": 1, "sent": 200, "bounced": 12}, 1),
    ("one complaint in a thousand", {"rung": 3, "days_ago": 1, "sent": 1_000, "complained": 1}, 4),
    ("two complaints in a thousand", {"rung": 3, "days_ago": 1, "sent": 1_000, "complained": 2}, 3),
    ("bounces over a tenth", {"rung": 3, "days_ago": 1, "sent": 100, "bounced": 11}, 2),
    ("complaints over three in a thousand", {"rung": 3, "days_ago": 1, "sent": 1_000, "complained": 4}, 2),
    ("never below the first", {"rung": 0, "days_ago": 1, "sent": 10, "bounced": 10}, 0),
    ("never above the last", {"rung": 9, "days_ago": 1, "sent": 100_000}, 9),
    ("simulated mail earns nothing", {"rung": 1, "days_ago": 1, "sent": 160, "simulated": (1, 0, 0, 0)}, 1),
    ("nothing but simulated", {"rung": 1, "days_ago": 1, "sent": 200, "bounced": 99, "simulated": (200, 99, 99, 0)}, 1),
    (
        "simulated bounces and complaints cost nothing",
        {"rung": 1, "days_ago": 1, "sent": 200, "bounced": 30, "complained": 9, "simulated": (30, 39, 30, 9)},
        2,
    ),
    (
        "nor do they thin out real ones",
        {"rung": 3, "days_ago": 1, "sent": 1_000, "bounced": 11, "simulated": (900, 900, 0, 0)},
        2,
    ),
    ("an idle day holds", {"rung": 3, "days_ago": 2, "sent": 1_000, "bounced": 900}, 3),
]


@pytest.mark.parametrize(("before", "rung"), [row[1:] for row in REVIEWS], ids=[row[0] for row in REVIEWS])
async def test_the_day_before_is_reviewed_at_the_first_send(
    door: Process, pool: asyncpg.Pool, before: dict[str, Any], rung: int
) -> None:
    account = await make_account(pool, daily_cap=None)
    await stands_at(pool, account, **before)

    await door.send(account)

    found = await head_of(pool, account)
    assert (found["rung"], found["sent_today"]) == (rung, 1)
    assert found["day"] == datetime.now(UTC).date()
    await door.send(account)
    assert (await head_of(pool, account))["rung"] == rung  # once a day


async def test_the_new_rung_is_the_cap_of_the_day(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=None)
    await stands_at(pool, account, rung=1, days_ago=1, sent=DAILY_ALLOWANCES[1], bounced=DAILY_ALLOWANCES[1] // 2)

    results = list(await asyncio.gather(*[door.try_send(account) for _ in range(DAILY_ALLOWANCES[0] + 20)]))

    assert len(accepted(results)) == DAILY_ALLOWANCES[0]
