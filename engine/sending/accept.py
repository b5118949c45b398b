"""Accept messages: from a decoded request to the commit before the 202.

checked and composed (engine.sending.preparation) → (group commit:) idempotency key → plan's schedule window →
suppressions → daily and monthly allowance → platform ceiling → stored with an `accepted` event and queue rows, or with
a `scheduled` event and a row in `schedules`. Then the hint is sent, and then the answer.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from typing import Any, TypeVar

import asyncpg
import structlog

from engine.base import clock, ids
from engine.base.errors import ErrorType, NoRoom, Refusal, unavailable
from engine.base.memory_pool import MemoryPool
from engine.base.secrets import Pepper
from engine.base.settings import Settings
from engine.delivery.hints import Hints
from engine.delivery.sealed_mail import MailSealer
from engine.delivery.splits import Splits
from engine.ledger.quota_usage import Ceiling
from engine.mail.simulator import domain_of
from engine.sending import accept_spans, accepted_rows, large_bodies
from engine.sending.accept_store import OutcomeUnknown, Storer, is_stored, replays_of
from engine.sending.accepted_rows import goes_now
from engine.sending.admission import Decision, Pending, Replays, TiedRows, replayed
from engine.sending.batch_decisions import BatchResult, left_out
from engine.sending.emails.types import Accepted, Checked, Prepared, RefusedRequest
from engine.sending.forget_content import sealed_apart
from engine.sending.preparation import Preparer
from engine.store import metrics
from engine.store.caches import Cache
from engine.store.database_errors import BadData, DatabaseUnavailable, DiskFull, MissingPartition
from engine.store.deadlines import within
from engine.store.group_commit import GroupCommit, Overloaded
from engine.store.large_mail import run_sized
from engine.store.traces import TRACES

RECHECK_TRIES, RECHECK_PAUSE_S = 10, 0.5  # Postgres recovers from a crash within seconds, or not soon
MAX_LARGE, VERY_LARGE_BYTES = 8, 2 * 1024 * 1024  # large messages in one transaction, if they are not very large
COMMIT_TIMEOUT_S = 15  # after it the client gets 503; statement timeouts bound the transaction itself

_log = structlog.get_logger("accept")

Value = TypeVar("Value")


class Acceptor:
    """Accepts the messages of one process; concurrent requests share transactions."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        hints: Hints,
        settings: Settings,
        *,
        on_flush: Callable[[int, float], None] = lambda _items, _seconds: None,
    ) -> None:
        self.preparer = Preparer(pool, settings)
        self._pool = pool
        self._hints = hints
        self._settings = settings
        self._on_flush = on_flush
        self._ceiling = Ceiling(settings.platform_daily_ceiling)
        self._storer = Storer(
            self._ceiling,
            shards=settings.shards,
            fresh_due_s=settings.fresh_due_s,
            simulator=domain_of(settings.mail_host),
            reserve=settings.broadcast_reserve,
        )
        self._group: GroupCommit[Pending, Accepted] = GroupCommit(self._flush, bad_data=(BadData,))
        self._large_group: GroupCommit[Pending, Accepted] = GroupCommit(
            self._flush, max_items=MAX_LARGE, bad_data=(BadData,)
        )
        self._very_large_group: GroupCommit[Pending, Accepted] = GroupCommit(
            self._flush, max_items=1, bad_data=(BadData,)
        )
        self._tied_group: GroupCommit[Pending, Accepted] = GroupCommit(self._flush, bad_data=(BadData,))
        self._memory = MemoryPool.for_accounts(2 * settings.max_inflight_bytes, largest=settings.max_request_bytes)
        self._splits = Splits(pool)

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        """Return the caches that the process must keep current (engine.store.caches.Stamps)."""
        return *self.preparer.caches, self._splits.cache

    async def accept(self, message: Checked, tied: TiedRows | None = None) -> Accepted:
        """Accept one message, and the rows tied to it in the same transaction; return after the commit.

        Raises its refusal. A repeated `idempotencyKey` returns the first message's id even if the request would be
        refused now.
        """
        if isinstance(message, RefusedRequest):
            replay = _replay_of(message, await self._replays_of([message]))
            if replay is None:
                raise message.refusal
            return replay
        if message.content_hours is not None:
            message = await self._sealed_apart(message)
        group = self._group_of([message]) if tied is None else self._tied_group
        return await self._committed(group.submit(Pending(message, tied=tied)), [message])

    async def accept_set(self, messages: Sequence[Checked], *, whole: bool = False) -> list[Decision]:
        """Accept messages of one account in one transaction, each decided on its own; return after its commit.

        Returns one decision per message, in order, as if they had come one after the other. `whole`: all or none; if
        one is refused, the others get a `conflict`. Raises `unavailable` if none could be stored.
        """
        refused = [one for one in messages if isinstance(one, RefusedRequest)]
        if whole and refused:
            return [one.refusal if isinstance(one, RefusedRequest) else left_out() for one in messages]
        replays = await self._replays_of(refused)
        ready = [
            one if one.content_hours is None else await self._sealed_apart(one)
            for one in messages
            if isinstance(one, Prepared)
        ]
        shared = ids.uuid7() if whole else None
        work = self._group_of(ready).submit_set([Pending(one, whole=shared) for one in ready])
        results = iter(await self._committed(work, ready))
        decisions: list[Decision] = []
        for message in messages:
            if isinstance(message, RefusedRequest):
                decisions.append(_replay_of(message, replays) or message.refusal)
                continue
            decision = _decision(next(results))
            if isinstance(decision, Accepted) and message.idempotency_key is not None:
                first = ids.parse_id(ids.Kind.MESSAGE, decision.id), message.request_digest
                replays.setdefault((message.account_id, message.idempotency_key), first)
            decisions.append(decision)
        return decisions

    async def foresee(self, messages: Sequence[Checked]) -> list[Decision]:
        """Return the decision on each message as `accept_set` would make it; store, count and send nothing.

        Raises `unavailable` if the database is away.
        """
        pending = [Pending(one) for one in messages if isinstance(one, Prepared)]
        try:
            async with self._pool.acquire() as connection:
                results = iter(await self._storer.foresee(connection, pending, clock.now()))
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error
        return [_decision(next(results)) if isinstance(one, Prepared) else one.refusal for one in messages]

    async def drain(self) -> None:
        """Wait for the flushes in flight and return the unused part of the ceiling's lease."""
        for group in (self._group, self._large_group, self._very_large_group, self._tied_group):
            await group.idle()
        with suppress(DatabaseUnavailable):  # a lease that is not returned stays unused until midnight
            async with self._pool.acquire() as connection:
                await self._ceiling.give_back(connection)

    @property
    def pepper(self) -> Pepper:
        """Return the pepper, under which content that is not retained is encrypted."""
        return self._settings.pepper

    @cached_property
    def _sealer(self) -> MailSealer:
        return MailSealer(self.pepper)

    async def _sealed_apart(self, message: Prepared) -> Prepared:
        return await run_sized(len(message.mime), partial(sealed_apart, message, self._sealer))

    def _group_of(self, messages: Sequence[Prepared]) -> GroupCommit[Pending, Accepted]:
        """Return the group for these messages: small ones do not wait while large ones are written.

        A very large one is committed alone, because all commits wait while the disk takes what was written before.
        """
        largest = max([len(one.mime) for one in messages], default=0)
        if largest <= large_bodies.LARGE_BYTES:
            return self._group
        return self._large_group if largest <= VERY_LARGE_BYTES else self._very_large_group

    async def _replays_of(self, refused: Iterable[RefusedRequest]) -> Replays:
        """Return messages accepted earlier under the keys of requests that are refused now."""
        keys = [(one.account_id, key) for one in refused if (key := one.idempotency_key) and "\0" not in key]
        if not keys:
            return {}
        try:
            return await replays_of(self._pool, keys)
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error

    # -- the transaction -------------------------------------------------------------------------

    async def _committed(self, work: Coroutine[Any, Any, Value], messages: Sequence[Prepared]) -> Value:
        """Return the result of the group commit, within limits on time and on the memory of all waiting messages."""
        if not messages:
            return await work
        memory = self._memory.open(messages[0].account_id)
        try:
            memory.take(sum([len(one.mime) for one in messages]))
        except Refusal:
            work.close()
            raise
        try:
            with within(COMMIT_TIMEOUT_S):
                return await work
        except BadData as error:
            raise _unstorable() from error
        except (DatabaseUnavailable, TimeoutError, Overloaded) as error:
            _log.warning("message not accepted", error=repr(error))
            raise _unavailable(error) from error
        finally:
            memory.release()

    async def _flush(self, batch: Sequence[Pending]) -> list[Accepted | Exception]:
        started = asyncio.get_running_loop().time()
        at = clock.now()
        split = await self._splits.now()
        try:
            result = await self._store(batch, at, split)
        except BadData as error:
            if batch[0].whole is None or any(item.whole != batch[0].whole for item in batch):
                raise  # the messages are stored apart from one another then
            return [error] * len(batch)
        fresh = [message for message in result.stored if goes_now(message)]
        self._ceiling.take(at.date(), len(fresh))
        # Copies of broadcasts are due at once and found by that, so that no hint of other mail waits behind theirs.
        hinted = [message for message in fresh if message.copy is None]
        self._hints.announce(accepted_rows.hinted(hinted, self._settings.shards, split))
        metrics.ACCEPTED.inc(len(fresh))
        seconds = asyncio.get_running_loop().time() - started
        self._on_flush(len(batch), seconds)
        if TRACES.tracer is not None:
            accept_spans.accepted(TRACES.tracer, result.stored, clock.now(), seconds)
        return result.decisions

    async def _store(self, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]) -> BatchResult:
        try:
            async with self._pool.acquire() as connection:
                await self._ceiling.reserve(connection, at.date(), sum([goes_now(item.message) for item in batch]))
                try:
                    return await self._storer.store(connection, batch, at, split)
                except MissingPartition:  # nothing was stored, and the partition has been made meanwhile
                    return await self._storer.store(connection, batch, at, split)
        except OutcomeUnknown as unknown:
            if not await self._was_committed(unknown.result.stored):
                raise unknown.error from None
            return unknown.result

    async def _was_committed(self, stored: list[Prepared]) -> bool:
        """Return True if a transaction whose COMMIT got no answer was committed: its first message tells for all."""
        for _ in range(RECHECK_TRIES):
            with suppress(DatabaseUnavailable):
                return await is_stored(self._pool, stored[0].id)
            await asyncio.sleep(RECHECK_PAUSE_S)
        return False


def _replay_of(message: RefusedRequest, replays: Replays) -> Accepted | None:
    """Return the answer of the first message with the key of a request that is refused now, None if there is none."""
    replay = replays.get((message.account_id, message.idempotency_key or ""))
    return None if replay is None else replayed(*replay, message.request_digest)


def _decision(result: Accepted | Exception) -> Decision:
    """Return the decision on one message of a batch; raise unexpected errors."""
    if isinstance(result, (Accepted, Refusal)):
        return result
    if isinstance(result, BadData):
        return _unstorable()
    if isinstance(result, DatabaseUnavailable):
        return _unavailable(result)
    raise result


def _unavailable(error: Exception) -> Refusal:
    return NoRoom() if isinstance(error, DiskFull) else unavailable()


def _unstorable() -> Refusal:
    return Refusal(ErrorType.INVALID_REQUEST, "The message contains a value that cannot be stored.")
