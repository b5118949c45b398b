"""Accept messages: from a decoded request to the commit before the 202.

checked and composed (engine.sending.preparation) → (group commit:) idempotency key → plan's schedule window →
suppressions → daily and monthly allowance → platform ceiling → stored with an `accepted` event and queue rows, or with
a `scheduled` event and a row in `schedules`. Then the hint is sent, and then the answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import structlog

from engine.base import clock, ids
from engine.base.errors import ErrorType, NoRoom, Refusal, unavailable
from engine.base.memory_pool import MemoryPool
from engine.base.settings import Settings
from engine.delivery.hints import Hints
from engine.delivery.splits import Splits
from engine.ledger.quota_usage import Ceiling
from engine.mail.simulator import domain_of
from engine.sending import accepted_rows
from engine.sending.accept_store import OutcomeUnknown, Storer, is_stored, replays_of
from engine.sending.accepted_rows import goes_now
from engine.sending.admission import Decision, Pending, TiedRows, replayed
from engine.sending.batch_decisions import BatchResult, left_out
from engine.sending.emails import rules
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import Accepted, Prepared, SendRequest
from engine.sending.preparation import Origin, Preparer, run_sized
from engine.store import metrics
from engine.store.caches import Cache
from engine.store.database_errors import BadData, DatabaseUnavailable, DiskFull, MissingPartition
from engine.store.deadlines import within
from engine.store.group_commit import GroupCommit, Overloaded

RECHECK_TRIES, RECHECK_PAUSE_S = 10, 0.5  # Postgres recovers from a crash within seconds, or not soon
COMMIT_TIMEOUT_S = 15  # after it the client gets 503; statement timeouts bound the transaction itself

_log = structlog.get_logger("accept")

Value = TypeVar("Value")


class Acceptor:
    """Accepts the messages of one process; concurrent requests share transactions."""

    def __init__(
        self, pool: asyncpg.Pool, hints: Hints, settings: Settings, *, on_flush: Callable[[int, float], None]
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
        self._tied_group: GroupCommit[Pending, Accepted] = GroupCommit(self._flush, bad_data=(BadData,))
        self._memory = MemoryPool.for_accounts(2 * settings.max_inflight_bytes, largest=settings.max_request_bytes)
        self._splits = Splits(pool)

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        """Return the caches that the process must keep current (engine.store.caches.Stamps)."""
        return *self.preparer.caches, self._splits.cache

    async def accept(self, request: SendRequest, origin: Origin) -> Accepted:
        """Accept one message; return after its commit.

        Raises the Refusal of the first failed check. A repeated `idempotencyKey` returns the first message's id even if
        the request would be refused now.
        """
        try:
            message = await self.preparer.prepare(request, origin)
        except Refusal:
            replay = (await self._replays_of(origin, [request.idempotency_key])).get(request.idempotency_key or "")
            if replay is not None:
                return await _answered(replay, request)
            raise
        except DatabaseUnavailable as error:
            raise unavailable() from error
        return await self._committed(self._group.submit(Pending(message)), origin, len(message.mime))

    async def accept_submitted(self, submitted: Submitted, origin: Origin) -> Accepted:
        """Accept one message that its client composed, with the checks of `accept`."""
        try:
            message = await self.preparer.prepare_submitted(submitted, origin)
        except Refusal:
            replay = (await self._replays_of(origin, [submitted.idempotency_key])).get(submitted.idempotency_key or "")
            if replay is not None:
                return replayed(*replay, submitted.request_digest)
            raise
        except DatabaseUnavailable as error:
            raise unavailable() from error
        return await self._committed(self._group.submit(Pending(message)), origin, len(message.mime))

    async def accept_prepared(self, message: Prepared) -> Accepted:
        """Accept one message that its caller checked and composed: only suppressions and limits can refuse it."""
        origin = Origin(message.account_id, message.source)
        return await self._committed(self._group.submit(Pending(message)), origin, len(message.mime))

    async def prepare(self, request: SendRequest, origin: Origin) -> Prepared:
        """Check and compose one message for `accept_tied`; raise its Refusal, or `unavailable`."""
        try:
            return await self.preparer.prepare(request, origin)
        except DatabaseUnavailable as error:
            raise unavailable() from error

    async def accept_tied(self, message: Prepared, tied: TiedRows) -> Accepted:
        """Accept one message together with rows of the caller's, in one transaction."""
        origin = Origin(message.account_id, message.source)
        return await self._committed(self._tied_group.submit(Pending(message, tied=tied)), origin, len(message.mime))

    async def accept_copies(self, messages: Sequence[Prepared]) -> list[Decision]:
        """Accept messages of one account that `composer` made, in one transaction, each decided on its own.

        Raises `unavailable` if none could be stored.
        """
        if not messages:
            return []
        origin = Origin(messages[0].account_id, messages[0].source)
        work = self._group.submit_set([Pending(one) for one in messages])
        return list(map(_decision, await self._committed(work, origin, sum([len(one.mime) for one in messages]))))

    async def accept_batch(self, requests: Sequence[SendRequest | Refusal], origin: Origin) -> list[Decision]:
        """Accept several messages in one transaction, each decided on its own; return after its commit.

        Returns one decision per request, in order, as if they had come one after the other. A Refusal among `requests`
        is returned in its place. Raises `unavailable` if none could be stored.
        """
        try:
            prepared = await self.preparer.prepare_all(requests, origin)
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error
        keys = [one.idempotency_key if isinstance(one, SendRequest) else None for one in requests]

        async def digest_of(index: int) -> bytes:
            request = requests[index]
            assert isinstance(request, SendRequest)  # another has no key
            return await run_sized(rules.composing_bytes(request), partial(rules.request_digest, request))

        return await self._decide_all(prepared, keys, digest_of, origin)

    async def accept_whole(self, requests: Sequence[SendRequest], origin: Origin) -> list[Decision]:
        """Accept several messages in one transaction, or none of them if one is refused; return after its commit.

        Returns one decision per request, in order: all accepted, or those at fault with their refusals and the others
        with a `conflict`. Raises `unavailable` if none could be stored.
        """
        try:
            prepared = await self.preparer.prepare_all(requests, origin)
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error
        ready = [one for one in prepared if isinstance(one, Prepared)]
        if len(ready) < len(prepared):
            return [one if isinstance(one, Refusal) else left_out() for one in prepared]
        whole = ids.uuid7()
        work = self._group.submit_set([Pending(one, whole=whole) for one in ready])
        return list(map(_decision, await self._committed(work, origin, sum([len(one.mime) for one in ready]))))

    async def accept_composed(
        self, messages: Sequence[Prepared | Refusal], keys: Sequence[tuple[str | None, bytes]], origin: Origin
    ) -> list[Decision]:
        """Accept messages that their caller composed with `checked_facts`, as `accept_batch` does.

        `keys`: the idempotency key and the digest of each request. A Refusal stays in its place, unless its key was
        used before.
        """

        async def digest_of(index: int) -> bytes:
            return keys[index][1]

        return await self._decide_all(messages, [key for key, _ in keys], digest_of, origin)

    async def _decide_all(
        self,
        messages: Sequence[Prepared | Refusal],
        keys: Sequence[str | None],
        digest_of: Callable[[int], Awaitable[bytes]],
        origin: Origin,
    ) -> list[Decision]:
        """Store what is prepared in one transaction; decide on all as if they had come one after the other.

        `digest_of` returns the digest of the request at a place; it is asked of refused ones whose key was used before.
        """
        stopped = [key for key, made in zip(keys, messages, strict=True) if isinstance(made, Refusal)]
        replays = await self._replays_of(origin, stopped)
        ready = [one for one in messages if isinstance(one, Prepared)]
        work = self._group.submit_set([Pending(one) for one in ready])
        results = iter(await self._committed(work, origin, sum([len(one.mime) for one in ready])))
        decisions: list[Decision] = []
        for index, made in enumerate(messages):
            if isinstance(made, Prepared):
                decision = _decision(next(results))
                if isinstance(decision, Accepted) and made.idempotency_key is not None:
                    message = ids.parse_id(ids.Kind.MESSAGE, decision.id)
                    replays.setdefault(made.idempotency_key, (message, made.request_digest))
                decisions.append(decision)
                continue
            replay = replays.get(keys[index] or "")
            decisions.append(made if replay is None else replayed(*replay, await digest_of(index)))
        return decisions

    async def foresee(
        self, requests: Sequence[SendRequest | Refusal], origin: Origin
    ) -> list[tuple[Decision, Prepared | None]]:
        """Return the decision of each request as `accept_batch` would make it, with the composed message; store, count
        and send nothing.

        Raises `unavailable` if the database is away.
        """
        try:
            return await self._foreseen(await self.preparer.prepare_all(requests, origin))
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error

    async def foresee_submitted(self, submitted: Submitted, origin: Origin) -> tuple[Decision, Prepared | None]:
        """Return the decision of a message that its client composed, as `foresee` does."""
        try:
            (found,) = await self._foreseen([await self.preparer.prepare_submitted(submitted, origin)])
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error
        return found

    async def _foreseen(self, prepared: Sequence[Prepared | Refusal]) -> list[tuple[Decision, Prepared | None]]:
        pending = [Pending(one) for one in prepared if isinstance(one, Prepared)]
        async with self._pool.acquire() as connection:
            results = iter(await self._storer.foresee(connection, pending, clock.now()))
        return [(_decision(next(results)), made) if isinstance(made, Prepared) else (made, None) for made in prepared]

    async def drain(self) -> None:
        """Wait for the flushes in flight and return the unused part of the ceiling's lease."""
        await self._group.idle()
        await self._tied_group.idle()
        with suppress(DatabaseUnavailable):  # a lease that is not returned stays unused until midnight
            async with self._pool.acquire() as connection:
                await self._ceiling.give_back(connection)

    async def _replays_of(self, origin: Origin, given: Iterable[str | None]) -> dict[str, tuple[UUID, bytes]]:
        """Return messages accepted earlier under the keys of requests that are refused now."""
        keys = [key for key in given if key and "\0" not in key]
        if not keys:
            return {}
        try:
            found = await replays_of(self._pool, [(origin.account_id, key) for key in keys])
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error
        return {key: message for (_, key), message in found.items()}

    # -- the transaction -------------------------------------------------------------------------

    async def _committed(self, work: Awaitable[Value], origin: Origin, size_bytes: int) -> Value:
        """Return the result of the group commit, within limits on time and on the memory of all waiting messages."""
        memory = self._memory.open(origin.account_id)
        try:
            memory.take(size_bytes)
        except Refusal:
            _close(work)
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
        self._on_flush(len(batch), asyncio.get_running_loop().time() - started)
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
                return await is_stored(self._pool, stored[0])
            await asyncio.sleep(RECHECK_PAUSE_S)
        return False


async def _answered(replay: tuple[UUID, bytes], request: SendRequest) -> Accepted:
    work = partial(rules.request_digest, request)
    return replayed(*replay, await run_sized(rules.composing_bytes(request), work))


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


def _close(work: Awaitable[Any]) -> None:
    """Close a coroutine that will not be awaited, which Python would warn about."""
    if asyncio.iscoroutine(work):
        work.close()
