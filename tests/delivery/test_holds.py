"""Events and recipient statuses of messages that wait because of a hold."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import msgspec
import orjson
import pytest

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.holds import HoldKind
from engine.delivery.wait_reasons import QueuedReason
from engine.sending import postpone, queue_admin
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.sending import Process, message_id, process, rows_of
from tests.harness.settling import settle

SOON = timedelta(seconds=20)
LATER = timedelta(hours=1)


@pytest.fixture
async def door(settings: Settings, new_database: NewDatabase) -> AsyncIterator[Process]:
    async with process(msgspec.structs.replace(settings, database_url=await new_database())) as one:
        yield one


async def told(pool: asyncpg.Pool, message: UUID, kind: str = "queued") -> list[dict[str, object]]:
    rows = await pool.fetch(
        "SELECT payload FROM events WHERE message_id = $1 AND type = $2 ORDER BY seq", message, kind
    )
    return [orjson.loads(row["payload"])["detail"] for row in rows]


async def next_tries(pool: asyncpg.Pool, message: UUID) -> dict[str, datetime | None]:
    rows = await pool.fetch("SELECT address, next_attempt_at FROM recipients WHERE message_id = $1", message)
    return {row["address"]: row["next_attempt_at"] for row in rows}


async def test_short_waits_one_after_the_other_are_told_once_they_add_up(door: Process) -> None:
    message = message_id(await door.send(await make_account(door.pool)))
    seen = []
    for wait in (SOON, 2 * SOON, 3 * SOON):
        rows = await rows_of(door.pool, message)
        await postpone.postpone(door.pool, rows, rows[0].accepted_at + wait, reason=QueuedReason.SITE_WINDOW)
        seen.append([one["reason"] for one in await told(door.pool, message)])

    assert seen == [[], ["site_window"], ["site_window"]]


async def test_a_retry_that_is_put_off_shows_when_it_will_be(door: Process) -> None:
    sent = await door.send(await make_account(door.pool), to=["ann@peer.test"])
    await settle(door.pool, sent.id, ("ann@peer.test", 450, "4.2.1 later"), again_after=SOON)
    message, until = message_id(sent), clock.now() + LATER
    await postpone.postpone(door.pool, await rows_of(door.pool, message), until, reason=QueuedReason.SITE_PAUSED)

    assert await next_tries(door.pool, message) == {"ann@peer.test": until}
    assert await told(door.pool, message) == [{"reason": "site_paused", "until": clock.iso(until)}]

    again = until + LATER
    await postpone.postpone(door.pool, await rows_of(door.pool, message), again, reason=QueuedReason.SITE_PAUSED)
    assert await next_tries(door.pool, message) == {"ann@peer.test": again}
    assert len(await told(door.pool, message)) == 1


async def test_a_hold_that_gets_another_end_is_shown_with_it(door: Process) -> None:
    sent = await door.send(await make_account(door.pool), to=["ann@peer.test"])
    await settle(door.pool, sent.id, ("ann@peer.test", 450, "4.2.1 later"), again_after=SOON)
    message, on = message_id(sent), queue_admin.queue_target(HoldKind.DOMAIN, "peer.test")
    shown = []
    for end in (clock.now() + LATER, clock.now() + 2 * LATER):
        await queue_admin.suspend(door.pool, on, reason="they asked", until=end)
        [standing] = await queue_admin.holds_in_force(door.pool)
        await postpone.set_aside(door.pool, [(row, standing) for row in await rows_of(door.pool, message)])
        shown.append(await next_tries(door.pool, message) == {"ann@peer.test": end})
    await queue_admin.resume(door.pool, on)

    assert shown == [True, True]


async def test_of_a_message_to_several_domains_each_step_names_its_own(door: Process) -> None:
    sent = await door.send(await make_account(door.pool), to=["ann@peer.test", "bob@kept.test"])
    later = (("ann@peer.test", 450, "4.2.1 later"), ("bob@kept.test", 450, "4.2.1 later"))
    await settle(door.pool, sent.id, *later, again_after=LATER)
    message, on = message_id(sent), queue_admin.queue_target(HoldKind.DOMAIN, "kept.test")
    before = await next_tries(door.pool, message)
    await queue_admin.suspend(door.pool, on, reason="they asked")
    [standing] = await queue_admin.holds_in_force(door.pool)
    rows = [(row, standing) for row in await rows_of(door.pool, message) if row.domain == "kept.test"]
    await postpone.set_aside(door.pool, rows)
    held = await next_tries(door.pool, message)
    await queue_admin.resume(door.pool, on)
    after = (await next_tries(door.pool, message))["bob@kept.test"]

    assert [one["to_domain"] for one in await told(door.pool, message, "attempted")] == ["kept.test", "peer.test"]
    assert [(one["reason"], one["to_domain"]) for one in await told(door.pool, message)] == [
        ("operator_hold", "kept.test"), ("operator_release", "kept.test"),
    ]  # fmt: skip
    assert held == before | {"bob@kept.test": None}
    assert after is not None
    assert abs(after - clock.now()) < timedelta(minutes=1)
