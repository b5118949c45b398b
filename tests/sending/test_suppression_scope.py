"""The scope of a suppression: dead addresses, and the streams that a reason leaves open."""

from collections.abc import AsyncIterator

import asyncpg
import orjson
import pytest

from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.sending.settle import Settler
from engine.sending.suppressions import store as suppressions
from engine.sending.unsubscribes import service as unsubscribe
from engine.sending.unsubscribes.types import LinkChoice, LinkSource, LinkUse
from tests.harness.accounts import TestAccount, add_stream, make_account
from tests.harness.broadcasts import BroadcastWorld, broadcasting, make_list, states, with_stream
from tests.harness.schedules import comes_due, release, scheduled, waybill
from tests.harness.sending import (
    BOUNCED,
    Process,
    attempt_at,
    rows_of,
)
from tests.harness.stored_messages import sent


async def stands(pool: asyncpg.Pool, account: TestAccount, address: str, reason: str) -> None:
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, $2, $3)", account.id, address, reason
    )


async def told(pool: asyncpg.Pool, account: TestAccount) -> list[dict[str, object]]:
    rows = await pool.fetch(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'suppression.added' ORDER BY seq", account.id
    )
    return [orjson.loads(row["payload"]) for row in rows]


async def test_a_bounce_that_suppresses_writes_one_account_event(
    door: Process, settler: Settler, pool: asyncpg.Pool
) -> None:
    account, message = await sent(door, "Ann@People.test")
    [row] = await rows_of(pool, message)

    assert await settler.settle(attempt_at(row, BOUNCED))

    [event] = await told(pool, account)
    assert event["messageId"] is None
    assert isinstance(event["detail"], dict)
    assert {key: event["detail"][key] for key in ("address", "reason", "source")} == {
        "address": "ann@people.test",
        "reason": "bounce",
        "source": "delivery",
    }
    assert event["detail"]["message_id"].startswith("msg_")


@pytest.mark.parametrize(("standing", "after", "events"), [("manual", "bounce", 1), ("complaint", "complaint", 0)])
async def test_a_bounce_takes_the_place_of_a_weaker_reason_only(
    door: Process, settler: Settler, pool: asyncpg.Pool, standing: str, after: str, events: int
) -> None:
    account, message = await sent(door, "ann@people.test")
    [row] = await rows_of(pool, message)
    await stands(pool, account, "ann@people.test", standing)

    assert await settler.settle(attempt_at(row, BOUNCED))

    assert await pool.fetchval("SELECT reason FROM suppressions WHERE account_id = $1", account.id) == after
    assert len(await told(pool, account)) == events


async def test_who_unsubscribed_still_gets_transactional_mail_and_none_of_other_streams(
    door: Process, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await add_stream(pool, account.id, "news")
    await stands(pool, account, "ann@people.test", "unsubscribe")

    assert (await door.send(account)).status == "queued"
    with pytest.raises(Refusal) as refused:
        await door.send(account, stream="news")
    assert refused.value.kind is ErrorType.SUPPRESSED


async def test_a_release_leaves_transactional_mail_to_who_unsubscribed_meanwhile(
    door: Process, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    await add_stream(pool, account.id, "news")
    receipt = await scheduled(door, account)
    news = await scheduled(door, account, stream="news")
    await stands(pool, account, "ann@people.test", "unsubscribe")
    await comes_due(pool, receipt, news)

    await release(pool, settings)

    assert [kind for kind, _ in await waybill(pool, receipt)][-1] == "accepted"
    assert [kind for kind, _ in await waybill(pool, news)][-1] == "suppressed"


@pytest.fixture
async def here(settings: Settings) -> AsyncIterator[BroadcastWorld]:
    async with broadcasting(settings) as made:
        yield made


async def leaves(pool: asyncpg.Pool, account: TestAccount, address: str, way: LinkSource) -> None:
    """Leave all mail of the account by the link of a copy."""
    link = await pool.fetchval(
        "SELECT id FROM unsubscribe_links WHERE account_id = $1 AND address = $2 LIMIT 1", account.id, address
    )
    async with pool.acquire() as connection, connection.transaction():
        await unsubscribe.apply(connection, [LinkUse(link, LinkChoice.ALL, way)])


@pytest.mark.parametrize("way", list(LinkSource))
@pytest.mark.parametrize("plan", ["free", "growth then free"])
async def test_a_broadcast_on_the_only_stream_does_not_reach_who_unsubscribed(
    here: BroadcastWorld, plan: str, way: LinkSource
) -> None:
    account = await make_account(here.pool, plan=plan.split(maxsplit=1)[0])
    if plan != "free":
        await with_stream(here.pool, account)
    people = await make_list(here.pool, account, ["ann@x.test", "bob@x.test"])
    first = await here.sent(account, people)
    await here.runner.run_due()
    assert set((await states(here.pool, first)).values()) == {"accepted"}
    await here.pool.execute("UPDATE accounts SET plan = 'free' WHERE id = $1", account.id)

    await leaves(here.pool, account, "ann@x.test", way)

    second = await here.sent(account, people)
    await here.runner.run_due()
    assert (await here.read(account, second)).stream == "transactional"
    assert await states(here.pool, second) == {"ann@x.test": "suppressed", "bob@x.test": "accepted"}
    assert (await here.process.send(account, to="ann@x.test")).status == "queued"


async def test_the_rest_of_a_paused_broadcast_does_not_reach_who_unsubscribed_meanwhile(here: BroadcastWorld) -> None:
    account = await make_account(here.pool, plan="free")
    people = await make_list(here.pool, account, ["ann@x.test", "bob@x.test"])
    await here.sent(account, people)
    await here.runner.run_due()
    await here.pool.execute("UPDATE accounts SET daily_cap = 0 WHERE id = $1", account.id)
    paused = await here.sent(account, people)
    await here.runner.run_due()
    assert set((await states(here.pool, paused)).values()) == {"waiting"}

    await leaves(here.pool, account, "ann@x.test", LinkSource.PAGE)
    await here.pool.execute("UPDATE accounts SET daily_cap = 100 WHERE id = $1", account.id)
    await here.make_due(paused)
    await here.runner.run_due()

    assert await states(here.pool, paused) == {"ann@x.test": "suppressed", "bob@x.test": "accepted"}


async def test_a_copy_is_checked_again_before_its_delivery(here: BroadcastWorld) -> None:
    account = await make_account(here.pool, plan="free")
    await here.sent(account, await make_list(here.pool, account, ["ann@x.test"]))
    await here.runner.run_due()
    copy = await here.pool.fetchval("SELECT id FROM messages WHERE account_id = $1", account.id)
    receipt = ids.parse_id(ids.Kind.MESSAGE, (await here.process.send(account, to="ann@x.test")).id)
    await leaves(here.pool, account, "ann@x.test", LinkSource.PAGE)

    wanted = [(account.id, "ann@x.test", copy), (account.id, "ann@x.test", receipt)]
    assert list(await suppressions.blocking(here.pool, wanted)) == wanted[:1]
