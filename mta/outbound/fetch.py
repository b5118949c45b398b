"""The fetch stage: finds the rows to deliver, new ones by hints and all others by due time.

Due times find retries, and rows whose hint was lost. The active queue is bounded; the rest waits in Postgres. Where
more is due than fits, accounts take turns, so that one with a hundred thousand rows in a shard delays no other; while
the queue fills, fresh mail of an account that has its share of it waits until there is room again. Due rows of
broadcasts are found here and loaded by `fetch_broadcasts`.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from engine.base.settings import Settings
from engine.delivery import queue
from engine.delivery.hints import HintReader, WokenShards
from engine.delivery.queue import BROADCAST_PRIORITY, DueKey, Holder
from engine.store import service_time
from engine.store.database_errors import DatabaseUnavailable
from engine.store.pace import PACE
from engine.store.redis import RedisUnavailable
from mta.outbound.active_queue import FULL, ActiveQueue, Key
from mta.outbound.backlogs import DEEP_ROWS, depths_of, together
from mta.outbound.fetch_broadcasts import BroadcastLoader
from mta.outbound.intake import RowIntake
from mta.outbound.requeue import Requeuer
from mta.outbound.row_moves import RowMoves
from mta.outbound.shares import MAX_UNPROVEN, UNPROVEN, unproven_room, within_shares
from mta.outbound.sites.fair_queue import LOWEST_EVERY
from mta.outbound.sites.proven_domains import ProvenDomains
from shards.ownership import ShardOwnership

LOAD_ROWS = 256
DUE_EVERY_S = 1.0
DUE_QUIET_S = 2.0
GATHER_S = 0.01  # between two reads of hints: those that come meanwhile share one read and one load
BUSY_GATHER_S = 0.03  # after a read of at least `BUSY` messages: they keep the process busy for longer than that
BUSY = 10
LAND_S = 0.002  # after a wake-up of an idle process: on a Redis cluster it may overtake hints on other servers
FEW = 64  # hinted messages that are loaded without looking at their accounts, and of later ones at once
MAX_LATER = 1_000  # hinted messages for unproven domains that wait to be loaded; due times find the rest
MAX_HINTS = 8  # of a shard in one read
PRESSED = 0.5  # of the active queue: above it, accounts are looked at before their mail is loaded
REFILL = 0.5  # of the active queue: below it, due rows are asked for again at once
LOOK_EVERY_S = 0.5  # at all shards while some have a backlog; in between, those are dug into in turn
MAX_LEFT = 100  # rows for unproven domains that are put off at once: each costs half a millisecond
FAIR_HOLDERS = 16  # accounts and priorities of a shard in one look
FAIR_ROWS = 4  # rows of each

_log = structlog.get_logger("mta")


class FetchStage:
    """Reads what the shards of one process owe and hands it to the intake."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: asyncpg.Pool,
        reader: HintReader,
        woken: WokenShards,
        active: ActiveQueue,
        proven: ProvenDomains,
        row_moves: RowMoves,
        ownership: ShardOwnership,
        intake: RowIntake,
        requeuer: Requeuer,
        broadcasts: BroadcastLoader,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._reader = reader
        self._woken = woken
        self._active = active
        self._proven = proven
        self._row_moves = row_moves
        self._ownership = ownership
        self._intake = intake
        self._requeuer = requeuer
        self._broadcasts = broadcasts
        self._ask_at = REFILL
        self._look_at = 0.0
        self._read_at = 0.0  # when hints were last read
        self._read_count = 0  # messages that they announced
        self._ahead_until = 0.0  # until then rows are taken before they fall due, because hints were given up
        self._later: dict[tuple[int, UUID], None] = {}  # hinted mail for unproven domains, not loaded yet
        self._later_came = asyncio.Event()
        self._deep: dict[int, int] = {}  # shards with a backlog, the next to dig into first -> rows to look at then
        self._has_backlog = False  # more mail is due than was taken, apart from broadcasts
        self._had: dict[int, int] = {}  # by shard with a backlog: rows found at its last turn
        self._reached: dict[int, Holder] = {}  # by shard: the account looked at last

    def gained(self, shards: Collection[int]) -> None:
        """Read recent hints and due rows of shards that this process has just gained."""
        self._reader.start(shards)
        self._woken.some(shards)
        self._active.refill.set()

    # -- hints ---------------------------------------------------------------------------------

    async def follow_hints(self) -> None:
        """Fetch new rows as hints arrive, until cancelled."""
        while True:
            await self._woken.wait(PACE.interval(DUE_EVERY_S, DUE_QUIET_S))
            gather_s = BUSY_GATHER_S if self._read_count >= BUSY else GATHER_S
            await asyncio.sleep(max(LAND_S, self._read_at + gather_s - time.monotonic()))
            await self._until_room()
            shards = self._woken.take(self._ownership.shards)
            try:
                await self._read_hints(shards)
            except RedisUnavailable:
                await asyncio.sleep(0.5)  # due times find everything meanwhile
                self._woken.all()
            except DatabaseUnavailable as error:
                _log.warning("hints not read", error=repr(error))
                await asyncio.sleep(0.5)
            self._read_at = time.monotonic()

    async def _read_hints(self, shards: list[int]) -> None:
        self._read_count = 0
        hints = await self._reader.read(shards, max_each=MAX_HINTS)
        if hints.unread:
            self._woken.some(hints.unread)
        if not hints.messages:
            return
        wanted = list(dict.fromkeys(hints.messages))
        self._read_count = len(wanted)
        if self._has_backlog or len(wanted) > FEW or len(self._active) + len(wanted) > PRESSED * self._active.limit:
            wanted = await self._within_shares(wanted)
        await self._load(wanted)

    async def _load(self, wanted: list[tuple[int, UUID]]) -> None:
        while wanted:
            await self._until_room()
            fitting = max(1, min(LOAD_ROWS, self._active.room))
            part, wanted = wanted[:fitting], wanted[fitting:]
            with self._row_moves.reading():
                loading = queue.load_hinted(self._pool, {key[1] for key in part}, {key[0] for key in part})
                await self._intake.take(loading)

    async def load_later(self) -> None:
        """Load the hinted mail for unproven domains, some at a time and beside the hints, until cancelled: mail for
        domains that answer must not wait for it."""
        while True:
            await self._later_came.wait()
            self._later_came.clear()
            try:
                while self._later:
                    await self._until_room()
                    await self._load_some_later()
            except (DatabaseUnavailable, OSError) as error:
                _log.warning("hinted mail not loaded", error=repr(error))
                await asyncio.sleep(0.5)  # due times find what was given up

    async def _load_some_later(self) -> None:
        part = list(itertools.islice(self._later, FEW))
        for key in part:
            del self._later[key]
        await self._load(part[: max(0, self._unproven_room(MAX_UNPROVEN))])  # due times find the others

    def _unproven_room(self, share: float = UNPROVEN) -> int:
        return unproven_room(self._active.by_domain, int(share * self._active.limit), self._proven)

    async def _within_shares(self, wanted: list[tuple[int, UUID]]) -> list[tuple[int, UUID]]:
        """Return what to load at once: mail for proven domains, except that of accounts which have their share of the
        queue; due times find it when there is room again. Mail for other domains is loaded little by little."""
        rows = await queue.outline(self._pool, {key[1] for key in wanted}, {key[0] for key in wanted})
        chosen = within_shares(rows, self._active.by_domain, self._active.limit, self._proven)
        if any((row.shard, row.message_id) not in chosen and row.domain in self._proven for row in rows):
            self._note_more(behind=True)
            self._ahead_until = time.monotonic() + self._settings.fresh_due_s
        unsure = {(row.shard, row.message_id) for row in rows if row.domain not in self._proven}
        room = max(0, min(MAX_LATER, self._unproven_room(MAX_UNPROVEN)) - len(self._later))
        self._later |= dict.fromkeys([key for key in chosen if key in unsure][:room])
        self._later_came.set()
        return [key for key in chosen if key not in unsure]

    @property
    def _ahead(self) -> timedelta:
        """Return how long before its due time a fresh row may be taken: where hints were given up, an idle process need
        not wait."""
        return timedelta(seconds=self._settings.fresh_due_s if time.monotonic() < self._ahead_until else 0.0)

    async def _until_room(self) -> None:
        """Wait until the active queue has room; hints stay in their streams meanwhile."""
        while self._active.room <= 0:  # noqa: ASYNC110 - an event would be set with every delivery
            await asyncio.sleep(0.01)

    # -- due times -----------------------------------------------------------------------------

    async def follow_due_times(self) -> None:
        """Take what has fallen due, until cancelled."""
        service_time.on_step(self._look_now)
        while True:
            try:
                async with asyncio.timeout(PACE.interval(DUE_EVERY_S, DUE_QUIET_S)):
                    await self._active.refill.wait()
            except TimeoutError:
                pass
            self._active.refill.clear()
            try:
                await self._take_due()
            except DatabaseUnavailable as error:
                _log.warning("due rows not read", error=repr(error))
                await asyncio.sleep(0.5)

    def _look_now(self) -> None:
        self._look_at = 0.0
        self._active.refill.set()

    async def _take_due(self) -> None:
        owned = self._ownership.shards
        limit = self._active.limit
        room = min(self._active.room, int(FULL * limit) - len(self._active), max(1, limit // 4))
        if not owned or room <= 0:
            return
        whole = [*self._active.whole(), *[message for message, _ in self._broadcasts.ahead]]
        keys: dict[Key, int] = {}
        if not self._deep or time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY_S
            keys = self._fresh(await self._look(owned, room, whole))
        if self._deep and len(keys) < room and (self._broadcasts.is_low or self._has_backlog or _others(keys)):
            keys |= self._fresh(await self._dig(owned, room - len(keys), whole))
        others, bulk = _others(keys), _broadcasts(keys)
        sure = room // LOWEST_EVERY  # as at a site: other mail goes first, but does not stop broadcasts
        chosen, left = self._divided([*bulk[:sure], *others, *bulk[sure:]], room)
        taken = _others({key: keys[key] for key in chosen})
        self._broadcasts.offer(_broadcasts({key: keys[key] for key in chosen}), more=bool(self._deep))
        for start in range(0, len(taken), LOAD_ROWS):
            with self._row_moves.reading():
                await self._intake.take(queue.load(self._pool, taken[start : start + LOAD_ROWS]))
        self._has_backlog = bool(self._deep and others)
        more_behind = self._has_backlog or len(others) > len(taken) or bool(taken and self._ahead)
        self._ask_at = REFILL * (UNPROVEN if left else 1.0)
        self._note_more(behind=more_behind)
        if left:
            await self._requeuer.leave(left)
        if more_behind and taken:
            self._active.ask_for_refill()

    def _divided(self, keys: list[Key], room: int) -> tuple[list[Key], list[Key]]:
        """Return the due rows to load, those for proven domains first, and some of the others that are too many to
        load; these are put off, so that the rows behind them are found."""
        sure = [key for key in keys if key[1] in self._proven]
        if len(sure) == len(keys):
            return keys[:room], []
        unsure = [key for key in keys if key[1] not in self._proven]
        may_take = max(0, self._unproven_room())
        taken = sure[:room]
        taken += unsure[: min(may_take, room - len(taken))]
        return taken, unsure[may_take : may_take + MAX_LEFT]

    def _fresh(self, found: Iterable[DueKey]) -> dict[Key, int]:
        """Return the keys that are not in the active queue, each once, with their priorities."""
        return {one.key: one.priority for one in found if not self._active.known(one.key)}

    async def _look(self, owned: Collection[int], room: int, but: list[UUID]) -> list[DueKey]:
        """Return what is due in shards that have little; of shards with a backlog, what is due to their accounts in
        turn. The latter are dug into afterwards."""
        each = max(2, 2 * room // len(owned))
        found = await queue.due(self._pool, owned, max_each=each, exclude=but, ahead=self._ahead)
        full = {shard for shard, count in Counter(one.shard for one in found).items() if count >= each}
        if not full:
            return found
        depths = depths_of(found)
        fresh = sorted(full - self._deep.keys(), key=lambda _: random.random())
        self._deep |= {shard: depths[shard] for shard in fresh}
        rest = [one for one in found if one.shard not in full]
        random.shuffle(rest)  # so that no shard always comes last
        return await self._in_turns(list(full), room, but) + rest

    async def _dig(self, owned: Collection[int], room: int, but: list[UUID]) -> list[DueKey]:
        """Return many rows of a few shards, those first that have waited longest, with mail of one domain together. A
        shard that may have more waits for another turn."""
        mine = set(owned)
        self._deep = {shard: depth for shard, depth in self._deep.items() if shard in mine}
        left = list(self._deep.items())
        chosen: list[DueKey] = []
        while left and len(chosen) < room:
            turn = dict([left.pop(0)])
            while left and sum(self._had.get(shard, DEEP_ROWS) for shard in turn) < room - len(chosen):
                turn.update([left.pop(0)])
            found = await queue.due(self._pool, list(turn), max_each=max(turn.values()), exclude=but, ahead=self._ahead)
            taken = together(found)[: room - len(chosen)]
            chosen += taken
            self._wait_for_turn(turn, found, taken)
        return chosen

    def _wait_for_turn(self, turn: Mapping[int, int], found: Collection[DueKey], taken: Collection[DueKey]) -> None:
        """Put shards that had their turn and may have more behind all others."""
        seen, used = Counter(one.shard for one in found), Counter(one.shard for one in taken)
        depths = depths_of(found)
        for shard, depth in turn.items():
            self._deep.pop(shard, None)
            self._had.pop(shard, None)
            if seen[shard] >= depth or seen[shard] > used[shard]:
                self._deep[shard], self._had[shard] = depths.get(shard, DEEP_ROWS), seen[shard]

    async def _in_turns(self, shards: list[int], room: int, but: list[UUID]) -> list[DueKey]:
        """Return some rows of every account in the shards, beginning behind the account that was looked at last; the
        next call goes on from there. They fill at most half of the room, the rest goes by age. Where a shard has a
        single account, age is fair."""
        random.shuffle(shards)
        behind = {shard: self._reached.pop(shard, queue.BEFORE_ALL) for shard in shards}
        found = await queue.due_fairly(self._pool, behind, holders=FAIR_HOLDERS, max_each=FAIR_ROWS, exclude=but)
        for row in found:  # in the order of the look
            self._reached[row.shard] = Holder(row.priority, row.account_id)
        walked = Counter(shard for shard, _, _ in {(row.shard, row.priority, row.account_id) for row in found})
        for shard in shards:
            if walked[shard] < FAIR_HOLDERS:  # all accounts were looked at: the next look starts from the first
                self._reached.pop(shard, None)
        alone = {shard for shard in shards if walked[shard] == 1 and behind[shard] == queue.BEFORE_ALL}
        keys = [
            DueKey(row.message_id, row.domain, row.shard, row.priority)
            for row in found
            if row.message_id and row.domain and row.shard not in alone
        ]
        random.shuffle(keys)
        return keys[: max(1, room // 2)]

    def _note_more(self, *, behind: bool) -> None:
        """Have the active queue ask for more if more is due than was taken: as soon as half of it is empty; where mail
        for unproven domains fills that half, it does not empty soon, so only once the queue is nearly empty."""
        self._active.refill_below(int(self._ask_at * self._active.limit) if behind else None)


def _others(keys: Mapping[Key, int]) -> list[Key]:
    """Return the keys of mail other than broadcasts."""
    return [key for key, priority in keys.items() if priority < BROADCAST_PRIORITY]


def _broadcasts(keys: Mapping[Key, int]) -> list[Key]:
    return [key for key, priority in keys.items() if priority >= BROADCAST_PRIORITY]
