"""Moves the waiting rows of a split or merged domain to the shards where they belong now, while mail flows.

Only the owner of a shard moves rows out of it, because it alone knows which of them it has in memory: those stay until
they are settled. It walks through the domain's rows of the shard in bounded steps, until a walk finds nothing out of
place and every acceptor has heard of the change. Each step holds the ownership of the shard, so that it cannot run into
a hand-over. A step changes nothing but the shard: due times stay as they are.
"""

import asyncio
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.delivery.partition import shard_of
from engine.delivery.splits import KIND
from engine.store.caches import Cache, bump
from engine.store.database_errors import DatabaseUnavailable
from engine.store.pace import PACE
from engine.store.queries import Queries
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.row_moves import RowMoves
from shards.ownership import ShardOwnership

LOOK_S: Final = 0.25
LOOK_QUIET_S: Final = 2.0
STEP_ROWS: Final = 250  # read, and at most moved, in one statement
PAUSE_S: Final = 0.01  # between two steps, so that delivery goes on
HEARD_S: Final = 3.0  # after which all acceptors use the new split: caches are some tenths of a second old
_FIRST = (datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))

_SQL = Queries.beside(__file__, "resharding.sql")
_ANY = _SQL.command("any_rehoming")
_ROWS = _SQL.command("rows_there")
_MOVE = _SQL.command("rehome_rows")
_COUNT = _SQL.command("count_rehomed")
_END = _SQL.command("end_rehoming")

_log = structlog.get_logger("rehoming")


class ReshardingTask(Struct, frozen=True):
    """The rows of a domain in one shard that may have to move. `over`: acceptors add none by the old split any more."""

    shard: int
    domain: str
    parts: int
    began_at: datetime
    over: bool


_HERE = _SQL.rows("rehomings_here", ReshardingTask)


class Resharder:
    """Moves the rows of one process's shards that a split or merge sends elsewhere."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        row_moves: RowMoves,
        active: ActiveQueue,
        ownership: ShardOwnership,
    ) -> None:
        self._pool = pool
        self._shards = ownership.total
        self._row_moves = row_moves
        self._active = active
        self._ownership = ownership
        self.cache: Cache[str, bool] = Cache(KIND, self._load)  # for the process's Stamps

    async def run(self) -> None:
        """Move rows whenever there are some to move, until cancelled."""
        while True:
            await PACE.wait(LOOK_S, LOOK_QUIET_S)
            try:
                if await self.cache.get(KIND):
                    await self.work()
            except DatabaseUnavailable as error:
                _log.warning("rows not moved to their new shards yet", error=repr(error))
                await asyncio.sleep(1)

    async def work(self) -> None:
        """Walk once through everything to move in this process's shards. Raises DatabaseUnavailable."""
        for errand in await _HERE.fetch(self._pool, list(self._ownership.shards), HEARD_S):
            await self._walk(errand)

    async def _walk(self, errand: ReshardingTask) -> None:
        moved, clean, after = 0, True, _FIRST
        while errand.shard in self._ownership.shards:
            rows = await _ROWS.records(self._pool, errand.shard, errand.domain, *after, STEP_ROWS)
            astray = {row["message_id"]: home for row in rows if (home := self._home(errand, row)) != errand.shard}
            clean = clean and not astray
            moved += await self._move(errand, astray)
            if len(rows) < STEP_ROWS:
                await self._tell(errand, moved, clean=clean)
                return
            after = (rows[-1]["due_at"], rows[-1]["message_id"])
            await asyncio.sleep(PAUSE_S)

    def _home(self, errand: ReshardingTask, row: asyncpg.Record) -> int:
        split = {errand.domain: errand.parts}
        return shard_of(errand.domain, self._shards, split=split, message_id=row["message_id"])

    async def _move(self, errand: ReshardingTask, astray: dict[UUID, int]) -> int:
        """Move the rows that are not in memory; from the statement on they cannot be taken any more."""
        keys = [key for message in astray if not self._active.known(key := (message, errand.domain))]
        if not keys:
            return 0
        self._row_moves.begin(keys, errand.shard)
        messages = [message for message, _ in keys]
        homes = [astray[message] for message in messages]
        try:
            done = await _MOVE.records(
                self._pool, messages, errand.domain, errand.shard, homes, self._ownership.member_id
            )
        except BaseException:
            self._row_moves.doubt(keys, errand.shard)
            raise
        self._row_moves.moved(keys, errand.shard)
        return len(done)

    async def _tell(self, errand: ReshardingTask, moved: int, *, clean: bool) -> None:
        if moved:
            await _COUNT.execute(self._pool, errand.shard, errand.domain, moved)
            _log.info("moved rows to their new shards", domain=errand.domain, shard=errand.shard, rows=moved)
        if not clean or not errand.over:
            return
        async with self._pool.acquire() as connection, connection.transaction():
            if await _END.records(connection, errand.shard, errand.domain, errand.began_at):
                await bump(connection, KIND)

    async def _load(self, _: str) -> bool:
        return bool((await _ANY.records(self._pool))[0]["found"])
