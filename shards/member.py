"""The membership of one mta process: join, renew the lease, take the assigned shards, hand over the others.

A lease protects both sides. Other members leave the shards alone until a margin after the lease has expired; the member
itself starts no delivery once its own clock says that the lease may have expired. The statement that removes an expired
member waits for that member's settling transactions and makes every later one fail (`Fenced`).
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
from engine.store.pace import PACE
from shards import lease, placement
from shards.ownership import ShardOwnership
from shards.ring import assign

MARGIN = 0.25  # of the lease: how much earlier the member stops than others may take over
POLL_S = 0.1  # between checks for a change of the placement rules

_log = structlog.get_logger("shards")


class ShardMember:
    """The membership of one process; lease and shards are written to `ownership`.

    `name` must belong to no other running process: an earlier member of that name is taken for an ended run of this
    process, whose shards are free at once. `before_take` settles what ended processes of this host left: it is awaited
    as a member, before any member is removed and its shards are free. `on_gain` receives added shards; `on_release`
    finishes the deliveries under way of shards to be released, however long that takes; `on_fenced` drops all
    deliveries, as other processes own the shards already.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        name: str,
        ownership: ShardOwnership,
        lease_s: float,
        before_take: Callable[[], Awaitable[None]],
        on_gain: Callable[[Collection[int]], Awaitable[None]],
        on_release: Callable[[Collection[int]], Awaitable[None]],
        on_fenced: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._name = name
        self._placement = placement.PlacementWatch(pool)
        self._ownership = ownership
        self._shards = ownership.total
        self._lease_s = lease_s
        self._before_take = before_take
        self._on_gain = on_gain
        self._on_release = on_release
        self._on_fenced = on_fenced
        self._releasing: asyncio.TaskGroup
        self._leaving: set[int] = set()  # shards that are being released
        self._joined = False
        self._first = True
        self._steady_since = 0.0

    @property
    def id(self) -> UUID:
        """Return the id of the present membership; it changes after each loss."""
        return self._ownership.member_id

    @property
    def owned(self) -> frozenset[int]:
        """Return the shards that this process owns."""
        return self._ownership.shards

    @property
    def name(self) -> str:
        """Return the name that operators see."""
        return self._name

    @property
    def cache(self) -> Cache[Any, Any]:
        """Return the cache for the process's Stamps: changed rules apply at once, not with the next heartbeat."""
        return self._placement.cache

    @property
    def holds(self) -> bool:
        """Return True while the lease is certainly valid. Checked right before message content is written."""
        return self._ownership.holds

    async def run(self) -> None:
        """Join, then renew the lease and rebalance until cancelled.

        An exception of `on_release` ends this too: the process stops, and other members take its shards.
        """
        async with asyncio.TaskGroup() as self._releasing:
            await self._stay_member()

    async def leave(self) -> None:
        """Release all shards at once, so that other members need not wait for the lease to expire."""
        self._ownership.end_lease()
        async with self._pool.acquire() as connection, connection.transaction():
            await lease.LEAVE.execute(connection, self.id)
            await bump(connection, placement.KIND)
        self._ownership.remove(self.owned)

    def lose_all(self) -> None:
        """Drop all shards, which other members own by now; the next heartbeat joins under a new id."""
        self._ownership.lose()
        self._leaving.clear()
        if self._joined:
            self._joined = False
            self._on_fenced()

    async def _stay_member(self) -> None:
        while True:
            try:
                await self._join()
                await self._succeed()
                while await self._heartbeat():
                    await self._rebalance()
                    await self._wait(self._lease_s / 3)
                _log.warning("member fenced", member=str(self.id))
                self.lose_all()
            except DatabaseUnavailable as error:
                _log.warning("lease not renewed", error=repr(error))
                await asyncio.sleep(self._lease_s / 12)

    async def _wait(self, seconds: float) -> None:
        """Wait until the next heartbeat is due or the placement rules have changed."""
        ends = time.monotonic() + seconds
        while (left_s := ends - time.monotonic()) > 0 and not self._placement.changed:
            await PACE.wait(min(POLL_S, left_s), min(2.0, left_s))

    async def _join(self) -> None:
        """Become a member, unless a connection loss only interrupted the membership."""
        if await self._heartbeat():
            return
        self.lose_all()
        began = time.monotonic()
        await lease.MAKE.execute(self._pool, self._shards)
        async with self._pool.acquire() as connection, connection.transaction():
            await lease.JOIN.execute(connection, self.id, self._name, 1.0, self._lease_s)
            if not self._first:  # else `_succeed` does it: the others would move shards twice
                await bump(connection, placement.KIND)
        self._renewed(began)
        _log.info("member joined", member=str(self.id), name=self._name)

    async def _succeed(self) -> None:
        """Remove the member of this process's previous run, whose shards other hosts may take from then on."""
        if not self._first:  # only once: two processes of one name would otherwise remove each other for ever
            return
        await self._before_take()
        async with self._pool.acquire() as connection, connection.transaction():
            await lease.SUPERSEDE.execute(connection, self._name, self.id)
            await bump(connection, placement.KIND)
        self._first = False

    async def _heartbeat(self) -> bool:
        """Renew the lease; return False if another member has fenced this one."""
        began = time.monotonic()
        rows = await lease.HEARTBEAT.records(self._pool, self.id, self._lease_s)
        if not rows:
            return False
        self._renewed(began)
        return True

    def _renewed(self, began: float) -> None:
        self._joined = True  # here, as the reply to `join_members` may be lost: then a heartbeat is the first to tell
        if began > self._ownership.held_until:
            self._steady_since = began
        self._ownership.renew(began + self._lease_s * (1 - MARGIN))

    async def _rebalance(self) -> None:
        await self._before_take()
        # A member fences others only after it has renewed its own lease steadily: after an outage of PostgreSQL the
        # leases of all members have expired although their processes are alive.
        if time.monotonic() - self._steady_since > self._lease_s:
            for row in await lease.FENCE.records(self._pool, self._lease_s * MARGIN):
                _log.warning("member with an expired lease fenced", member=str(row["id"]), name=row["name"])
        rules = await self._placement.read()
        members = await lease.MEMBERS.fetch(self._pool)
        if self.id not in {row.id for row in members}:
            return
        leaving = set(self._leaving)  # before the rows are read: they may be released meanwhile
        owners = await lease.OWNERS.fetch(self._pool, self._shards)
        current = {row.shard: str(row.owner) for row in owners if row.alive and row.owner is not None}
        weights, pins = placement.weights_of(members, rules), placement.pins_of(members, rules)
        wanted = assign(self._shards, weights, current, pins=pins, loads=rules.loads)
        mine = {shard for shard, member in wanted.items() if member == str(self.id)}
        # The reply to an earlier `take_free` was lost: no other member takes shards that stand under this one's id.
        unnoticed = {row.shard for row in owners if row.owner == self.id} - self.owned - leaving
        self._hand_over({shard for shard in self.owned | unnoticed if shard not in mine})
        await self._gain(unnoticed & mine)
        await self._take({row.shard for row in owners if not row.alive and row.shard in mine})

    def _hand_over(self, shards: Collection[int]) -> None:
        """Stop fetching from these shards at once, and release them in the background as their deliveries finish."""
        if not shards:
            return
        self._ownership.remove(shards)
        self._leaving.update(shards)
        self._releasing.create_task(self._release(shards))

    async def _release(self, shards: Collection[int]) -> None:
        """Release each shard when its own deliveries are finished; a slow one does not delay the others."""
        owner = self.id
        async with asyncio.TaskGroup() as waiting:
            finishing = {waiting.create_task(self._finished(shard)) for shard in shards}
            while finishing and owner == self.id:
                done, finishing = await asyncio.wait(finishing, return_when=asyncio.FIRST_COMPLETED)
                await self._write_release(owner, [task.result() for task in done])

    async def _finished(self, shard: int) -> int:
        await self._on_release((shard,))
        return shard

    async def _write_release(self, owner: UUID, shards: Collection[int]) -> None:
        while owner == self.id:
            try:
                async with self._pool.acquire() as connection, connection.transaction():
                    await lease.RELEASE.execute(connection, owner, list(shards))
                    await bump(connection, placement.KIND)  # the next owner need not wait for its heartbeat
            except DatabaseUnavailable as error:
                _log.warning("shards not released yet", error=repr(error))
                await asyncio.sleep(1)
            else:
                self._leaving.difference_update(shards)
                _log.info("shards released", shards=len(shards))
                return

    async def _take(self, shards: Collection[int]) -> None:
        if not shards:
            return
        rows = await lease.TAKE.records(self._pool, self.id, list(shards))
        await self._gain({row["shard"] for row in rows})

    async def _gain(self, shards: Collection[int]) -> None:
        """Begin to deliver the mail of shards whose rows name this member."""
        if shards:
            self._ownership.add(shards)
            _log.info("shards taken", shards=len(shards), owned=len(self.owned))
            await self._on_gain(shards)
