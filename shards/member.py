"""One process as an owner of shards: joins, keeps its lease, takes its share, hands over, and knows when to stop.

A lease is a promise in both directions. Others leave the shards alone until it has run out by a margin; the
member itself stops starting anything once its own clock says that the lease may have run out. Whoever removes
an expired member waits for that member's settling transactions and makes every later one fail (`Fenced`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from engine.store.caches import Cache, bump
from engine.store.database_errors import DatabaseUnavailable
from shards import lease, live_map
from shards.ownership import ShardOwnership
from shards.ring import assign

MARGIN = 0.25  # of the lease: how much earlier the member stops than others may take over
HEAR_S = 0.1  # a change of the map waits no longer for a look, once it is heard of

_log = structlog.get_logger("shards")


class Member:
    """The membership of one process. `name` belongs to no other living process: an earlier member of that name is
    this process's dead predecessor, whose shards need not wait for its lease to run out. Lease and shards are written
    to `ownership`, which whoever delivers reads.

    `on_gain` hears of shards that came; `on_release` finishes what is in hand of shards that are to go, however
    long that takes; `on_fenced` drops everything: the work belongs to others already.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        name: str,
        ownership: ShardOwnership,
        lease_s: float,
        on_gain: Callable[[Collection[int]], Awaitable[None]],
        on_release: Callable[[Collection[int]], Awaitable[None]],
        on_fenced: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._name = name
        self._map = live_map.Watch(pool)
        self._ownership = ownership
        self._shards = ownership.total
        self._lease_s = lease_s
        self._on_gain = on_gain
        self._on_release = on_release
        self._on_fenced = on_fenced
        self._leaving: asyncio.TaskGroup
        self._joined = False
        self._first = True
        self._steady_since = 0.0

    @property
    def id(self) -> UUID:
        """The id of the present membership; a new one after each loss."""
        return self._ownership.member_id

    @property
    def owned(self) -> frozenset[int]:
        """The shards that this process owns."""
        return self._ownership.shards

    @property
    def name(self) -> str:
        """What the operator knows it as."""
        return self._name

    @property
    def cache(self) -> Cache[Any, Any]:
        """For the process's Stamps: a change of the map is heeded at once instead of with the next heartbeat."""
        return self._map.cache

    @property
    def holds(self) -> bool:
        """True while the lease certainly stands. Asked right before message content is written."""
        return self._ownership.holds

    async def run(self) -> None:
        """Join, then heartbeat and rebalance until cancelled.

        A fault in `on_release` ends this too: with its process gone, the shards go to others.
        """
        async with asyncio.TaskGroup() as self._leaving:
            await self._keep()

    async def leave(self) -> None:
        """Give everything up at once, so that others need not wait for the lease to run out."""
        self._ownership.end_lease()
        async with self._pool.acquire() as connection, connection.transaction():
            await lease.LEAVE.execute(connection, self.id)
            await bump(connection, live_map.KIND)
        self._ownership.remove(self.owned)

    def lose_all(self) -> None:
        """Forget every shard: they are somebody else's by now. The next turn joins under a new id."""
        self._ownership.lose()
        if self._joined:
            self._joined = False
            self._on_fenced()

    async def _keep(self) -> None:
        while True:
            try:
                await self._join()
                while await self._beat():
                    await self._rebalance()
                    await self._rest(self._lease_s / 3)
                _log.warning("fenced", member=str(self.id))
                self.lose_all()
            except DatabaseUnavailable as error:
                _log.warning("lease not renewed", error=repr(error))
                await asyncio.sleep(self._lease_s / 12)

    async def _rest(self, seconds: float) -> None:
        """Until the next heartbeat is due, or the map has changed."""
        ends = time.monotonic() + seconds
        while (left_s := ends - time.monotonic()) > 0 and not self._map.changed:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(min(HEAR_S, left_s))

    async def _join(self) -> None:
        """Become a member, unless a connection loss only interrupted the membership."""
        if await self._beat():
            return
        self.lose_all()
        began = time.monotonic()
        await lease.MAKE.execute(self._pool, self._shards)
        if self._first:  # never again: two processes by one name would otherwise end each other's turns for ever
            await lease.SUPERSEDE.execute(self._pool, self._name)
            self._first = False
        async with self._pool.acquire() as connection, connection.transaction():
            await lease.JOIN.execute(connection, self.id, self._name, 1.0, self._lease_s)
            await bump(connection, live_map.KIND)
        self._joined = True
        self._renewed(began)
        _log.info("joined", member=str(self.id), name=self._name)

    async def _beat(self) -> bool:
        """Renew the lease; False when it was taken away."""
        began = time.monotonic()
        rows = await lease.HEARTBEAT.records(self._pool, self.id, self._lease_s)
        if not rows:
            return False
        self._renewed(began)
        return True

    def _renewed(self, began: float) -> None:
        if began > self._ownership.held_until:
            self._steady_since = began
        self._ownership.renew(began + self._lease_s * (1 - MARGIN))

    async def _rebalance(self) -> None:
        # Only who has itself been renewing steadily judges others: after an outage of Postgres everybody's
        # lease has run out, and nobody is to blame.
        if time.monotonic() - self._steady_since > self._lease_s:
            for row in await lease.FENCE.records(self._pool, self._lease_s * MARGIN):
                _log.warning("fenced a member whose lease ran out", member=str(row["id"]), name=row["name"])
        live = await self._map.read()
        members = await lease.MEMBERS.fetch(self._pool)
        if self.id not in {row.id for row in members}:
            return
        owners = await lease.OWNERS.fetch(self._pool, self._shards)
        current = {row.shard: str(row.owner) for row in owners if row.alive and row.owner is not None}
        weights, pins = live_map.weights_of(members, live), live_map.pins_of(members, live)
        wanted = assign(self._shards, weights, current, pins=pins, loads=live.loads)
        mine = {shard for shard, member in wanted.items() if member == str(self.id)}
        self._hand_over({shard for shard in self.owned if shard not in mine})
        await self._take({row.shard for row in owners if not row.alive and row.shard in mine})

    def _hand_over(self, shards: Collection[int]) -> None:
        """Take nothing new of these shards, finish what is in hand, then let them go; heartbeats go on meanwhile."""
        if not shards:
            return
        self._ownership.remove(shards)
        self._leaving.create_task(self._release(shards))

    async def _release(self, shards: Collection[int]) -> None:
        """Give each shard up as soon as nothing of it is in hand; one on a slow wire does not hold the others."""
        owner = self.id
        async with asyncio.TaskGroup() as waiting:
            finishing = {waiting.create_task(self._finished(shard)) for shard in shards}
            while finishing and owner == self.id:
                done, finishing = await asyncio.wait(finishing, return_when=asyncio.FIRST_COMPLETED)
                await self._give_up(owner, [task.result() for task in done])

    async def _finished(self, shard: int) -> int:
        await self._on_release((shard,))
        return shard

    async def _give_up(self, owner: UUID, shards: Collection[int]) -> None:
        while owner == self.id:
            try:
                async with self._pool.acquire() as connection, connection.transaction():
                    await lease.RELEASE.execute(connection, owner, list(shards))
                    await bump(connection, live_map.KIND)  # whoever is to have them need not wait for a heartbeat
            except DatabaseUnavailable as error:
                _log.warning("release waits", error=repr(error))
                await asyncio.sleep(1)
            else:
                _log.info("handed over", shards=len(shards))
                return

    async def _take(self, shards: Collection[int]) -> None:
        if not shards:
            return
        rows = await lease.TAKE.records(self._pool, self.id, list(shards))
        taken = frozenset(row["shard"] for row in rows)
        if taken:
            self._ownership.add(taken)
            _log.info("took", shards=len(taken), owned=len(self.owned))
            await self._on_gain(taken)
