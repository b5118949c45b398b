"""The slots of live tails in PostgreSQL, without the API: what a release and a renewal at the same time leave."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress

import asyncpg
from msgspec import structs

from api.areas.tails.follow import EVENTS
from engine.base.settings import Settings
from engine.events.tails import rules
from engine.events.tails.hub import Tails
from engine.events.tails.types import TailReader, TailStart
from tests.harness.accounts import make_account
from tests.harness.service import until

LEASE_S = 6.0  # renewed every two seconds, by a query that may take as long


async def test_a_tail_closed_during_a_renewal_leaves_no_slot(settings: Settings, pool: asyncpg.Pool) -> None:
    first, second = sorted([(await make_account(pool)).id, (await make_account(pool)).id])  # the order of a renewal
    hub = Tails(pool, structs.replace(settings, tail_lease_s=LEASE_S), still_allowed=_everybody)
    all_events, start = rules.event_filters([]), TailStart(after=0, replay=0)
    kept = await hub.open(TailReader(first), EVENTS, all_events, start)
    closed = await hub.open(TailReader(second), EVENTS, all_events, start)

    async def renewal_waits() -> bool:
        return bool(
            await pool.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock' AND query LIKE '%INTO tail_slots%'"
            )
        )

    async with _running(hub):
        async with pool.acquire() as other, other.transaction():
            await other.execute("SELECT FROM tail_slots WHERE account_id = $1 FOR UPDATE", first)
            await until(renewal_waits)  # for the slot of `first`, before it comes to the other
            closing = asyncio.create_task(closed.close())
            await asyncio.sleep(0.2)  # more than a release takes that waits for nothing
        await closing
        await kept.close()

    assert not await pool.fetchval("SELECT count(*) FROM tail_slots WHERE account_id = ANY($1)", [first, second])


async def _everybody(readers: Collection[TailReader]) -> Collection[TailReader]:
    return readers


@asynccontextmanager
async def _running(hub: Tails) -> AsyncIterator[None]:
    """Renew the hub's slots meanwhile."""
    task = asyncio.create_task(hub.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
