"""A week without partitions, as after five weeks without a worker: the first writer makes them, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import aiohttp
import asyncpg
import pytest
from msgspec.structs import replace

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.delivery.holds import HoldKind
from engine.delivery.wait_reasons import QueuedReason
from engine.sending import complaint, postpone, queue_admin
from engine.sending.cancel_schedule import cancel_schedule
from engine.sending.suppressions.service import suppress
from engine.sending.suppressions.types import Reason
from engine.store import partitions
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.api import Api, serving
from tests.harness.receiver import Receiver, world
from tests.harness.schedules import comes_due, release, scheduled
from tests.harness.sending import (
    BOUNCED,
    DELIVERED,
    Process,
    attempt_at,
    member,
    process,
    rows_of,
    settler_of,
)
from tests.harness.stored_messages import sent, status
from tests.harness.submission import message, relaying

LATER = ("events", "webhook_attempts")  # what is still written of messages from the week before


@pytest.fixture(scope="module")
async def own(settings: Settings, lasting_database: NewDatabase) -> Settings:
    return replace(settings, database_url=await lasting_database())


@pytest.fixture
async def door(own: Settings) -> AsyncIterator[Process]:
    async with process(own) as one:
        yield one


async def lose(pool: asyncpg.Pool, *tables: str) -> None:
    """Drop the partitions of this week and of all later ones."""
    now = partitions.week_of(clock.now())
    async with pool.acquire() as connection:
        for table in tables or partitions.TABLES:
            for week in await partitions.weeks(connection, table):
                if week >= now:
                    await connection.execute(f"DROP TABLE {partitions.partition_name(table, week)}")


async def block(pool: asyncpg.Pool, table: str) -> str:
    """Keep this week's partition from being made: another table has its name."""
    name = partitions.partition_name(table, partitions.week_of(clock.now()))
    await pool.execute(f"CREATE TABLE {name} ()")
    return name


async def test_every_partitioned_table_is_known(pool: asyncpg.Pool) -> None:
    rows = await pool.fetch("SELECT relname FROM pg_class WHERE relkind = 'p'")

    assert {row["relname"] for row in rows} == {*partitions.TABLES, *partitions.DAY_TABLES}


# -- doors for mail --------------------------------------------------------------------------------


@pytest.mark.parametrize("table", partitions.TABLES)
async def test_one_missing_table_is_enough_to_be_noticed_and_is_made(door: Process, table: str) -> None:
    account = await make_account(door.pool)
    await lose(door.pool, table)
    await door.send(account, idempotencyKey="once")

    await lose(door.pool, "events")
    assert (await door.send(account, idempotencyKey="once")).status == "duplicate"


async def test_parallel_senders_of_several_processes_make_the_week_once_and_all_are_accepted(own: Settings) -> None:
    async with process(own) as one, process(own) as other:
        accounts = [await make_account(one.pool) for _ in range(4)]
        await lose(one.pool)
        sends = [door.send(account) for account in accounts for door in (one, other) for _ in range(4)]
        answers = await asyncio.gather(*sends)
        found = await one.pool.fetchval(
            "SELECT count(*) FROM messages WHERE account_id = ANY($1)", [a.id for a in accounts]
        )

    assert {answer.status for answer in answers} == {"queued"}
    assert found == len(answers)


async def test_a_large_body_makes_its_week_and_is_stored_once(door: Process) -> None:
    account = await make_account(door.pool)
    for _ in range(2):  # first under the locks, then in one call
        await lose(door.pool)
        found = await door.send(account, text="0123456789\n" * 50_000)
        assert found.status == "queued"

        rows = await door.pool.fetch("SELECT octet_length(mime) AS size FROM message_bodies")
        assert [row["size"] > 500_000 for row in rows] == [True]


async def test_a_batch_that_is_stored_the_sure_way_is_stored_once(door: Process) -> None:
    account = await make_account(door.pool)
    await door.send(account)
    await suppress(door.pool, account.id, [("other@people.test", Reason.MANUAL)])  # the remembered head has changed
    await lose(door.pool, "messages")
    at = clock.iso(clock.now() + timedelta(hours=1))
    answers = await asyncio.gather(door.send(account), door.send(account, scheduledAt=at))

    assert {answer.status for answer in answers} == {"queued", "scheduled"}
    assert await door.pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 2


async def test_every_write_through_http_and_smtp_is_answered_as_ever(
    own: Settings, door: Process, http: aiohttp.ClientSession, api_log: Path, tmp_path: Path
) -> None:
    account = await make_account(door.pool)
    writes: list[tuple[str, object]] = [
        ("/v1/emails", account.email()),
        ("/v1/emails/batch", {"messages": [account.email(), account.email()]}),
        ("/v1/suppressions", {"address": "gone@people.test"}),
        ("/v1/webhooks", {"url": "https://hook.example.com/in"}),
        ("/v1/domains", {"name": "fresh.example.com"}),
        ("/v1/streams", {"name": "News"}),
    ]
    with serving(own, api_log) as url:
        api = Api(url, http)
        for path, body in writes:
            await lose(door.pool)
            answer = await api.post(path, account.token, body)
            assert answer.status in {200, 201, 202}, (path, answer.body)
    async with relaying(own, tmp_path) as relay:
        client = await relay.logged_in(account)
        await lose(door.pool)
        assert (await client.send(account, message(account))).startswith("250 ")


# -- what follows ------------------------------------------------------------------------------------

Follow = Callable[[Process, UUID], Awaitable[object]]


async def _settle(door: Process, message: UUID) -> None:
    [row] = await rows_of(door.pool, message)
    assert await settler_of(door.pool, await member(door.pool)).settle(attempt_at(row, DELIVERED))


async def _settle_with_consequences(door: Process, message: UUID) -> None:
    [row] = await rows_of(door.pool, message)
    assert await settler_of(door.pool, await member(door.pool)).settle(attempt_at(row, BOUNCED))


async def _postpone(door: Process, message: UUID) -> None:
    rows = await rows_of(door.pool, message)
    await postpone.postpone(door.pool, rows, clock.now() + timedelta(hours=1), reason=QueuedReason.SITE_PAUSED)


async def _give_up(door: Process, message: UUID) -> None:
    [row] = await rows_of(door.pool, message)
    assert (
        await queue_admin.bounce(
            door.pool, queue_admin.queue_target(HoldKind.DOMAIN, row.domain), reason="enough", hold_known_s=0
        )
        == 1
    )


@pytest.mark.parametrize(
    ("follow", "becomes"),
    [(_settle, "delivered"), (_settle_with_consequences, "bounced"), (_postpone, "queued"), (_give_up, "rejected")],
)
async def test_what_follows_a_message_is_written_into_the_new_week(door: Process, follow: Follow, becomes: str) -> None:
    account, message = await sent(door, f"ann@{becomes}.test")
    await lose(door.pool, *LATER)
    await follow(door, message)

    assert await status(door.pool, message) == becomes
    assert await door.pool.fetchval("SELECT count(*) FROM events WHERE account_id = $1", account.id) > 0


async def test_complaints_cancels_and_releases_are_written_into_the_new_week(door: Process, own: Settings) -> None:
    account, told = await sent(door, "ann@complains.test")
    await _settle(door, told)
    canceled, due = await scheduled(door, account), await scheduled(door, account)
    await comes_due(door.pool, due)

    await lose(door.pool, *LATER)
    assert await complaint.complain(door.pool, told, 0, at=clock.now()) is complaint.Complaint.RECORDED
    await lose(door.pool, *LATER)
    await cancel_schedule(door.pool, account.id, canceled)
    await lose(door.pool, *LATER)
    assert await release(door.pool, own) == 1
    assert await status(door.pool, due) == "queued"


async def test_posts_to_webhooks_are_recorded_in_the_new_week(own: Settings) -> None:
    assert own.database_url is not None
    async with world(own, own.database_url) as here, Receiver() as receiver:
        endpoint = await here.endpoint(receiver.url)
        event = await here.event(endpoint.account)
        await lose(here.pool, "webhook_attempts")
        async with here.posting():
            await here.until_posted(endpoint)
        assert len(await here.attempts(endpoint, event)) == 1


# -- a week that can't be made -----------------------------------------------------------------------


async def test_a_send_is_told_503_and_when_to_come_back_while_the_week_can_not_be_made(
    own: Settings, door: Process, http: aiohttp.ClientSession, api_log: Path, tmp_path: Path
) -> None:
    account = await make_account(door.pool)
    with serving(own, api_log) as url:
        api = Api(url, http)
        await lose(door.pool, "events")
        name = await block(door.pool, "events")
        try:
            for path, body in (("/v1/emails", account.email()), ("/v1/suppressions", {"address": "gone@people.test"})):
                answer = await api.post(path, account.token, body)
                assert (answer.status, answer.error["type"]) == (503, "unavailable"), path
                assert int(answer.headers["retry-after"]) >= 1
            ready = await api.get("/readyz")
            assert (ready.status, ready.json["checks"]["partitions"]["ok"]) == (200, False)
            assert ready.json["checks"]["partitions"]["weeksAhead"] == -1
            async with relaying(own, tmp_path) as relay:
                client = await relay.logged_in(account)
                assert (await client.send(account, message(account))).startswith("451 4.3.0 [unavailable] ")
        finally:
            await door.pool.execute(f"DROP TABLE {name}")
        assert (await api.post("/v1/emails", account.token, account.email())).status == 202


async def test_outcomes_wait_for_a_week_that_can_not_be_made(door: Process) -> None:
    found = {outcome: await sent(door, f"ann@{outcome}.test") for outcome in ("delivered", "bounced")}
    settler = settler_of(door.pool, await member(door.pool))
    await lose(door.pool, "events")
    name = await block(door.pool, "events")
    waiting = []
    for outcome, (_, one) in found.items():
        [row] = await rows_of(door.pool, one)
        waiting.append(settler.settle(attempt_at(row, DELIVERED if outcome == "delivered" else BOUNCED)))
    with pytest.raises(Refusal) as refused:
        await door.send(await make_account(door.pool))
    assert refused.value.kind is ErrorType.UNAVAILABLE
    assert not any(one.done() for one in waiting)
    await door.pool.execute(f"DROP TABLE {name}")

    assert await asyncio.gather(*waiting) == [True, True]
    assert [await status(door.pool, one) for _, one in found.values()] == list(found)
