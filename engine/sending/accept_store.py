"""Store a batch of prepared messages: decide each on its account's head, and write all of them in one transaction.

A batch is decided on the heads as the process last saw them. If all its messages are accepted, one call of a database
function locks the heads, checks that each is still accepted, and stores them. Otherwise nothing is stored and the batch
is decided under the locks: look up suppressions, lock heads, decide, store, commit; rows of other areas are written in
the same transaction.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import date, datetime, timedelta
from functools import partial
from operator import itemgetter
from uuid import UUID

from engine.base import clock
from engine.base.errors import Refusal
from engine.base.extra_rows import ExtraRow
from engine.ledger import batch_counts, heads, log, quota_usage
from engine.ledger.batch_counts import COUNTED
from engine.ledger.heads import AccountHead
from engine.ledger.quota_usage import Ceiling, Simulated
from engine.sending import accepted_rows, broadcast_copies, large_bodies
from engine.sending.accepted_rows import goes_now
from engine.sending.admission import Pending, Replays
from engine.sending.batch_decisions import BatchResult, decide_batch, decide_together, sets_of
from engine.sending.emails.types import Accepted, Prepared
from engine.sending.fast_path import FastPathBackoff
from engine.sending.suppressions import rules as suppression_rules
from engine.sending.suppressions import store as suppressions
from engine.sending.unsubscribes import store as unsubscribes
from engine.store.database_errors import DatabaseUnavailable, MissingPartition, SessionLost
from engine.store.queries import Conn, Queries, Source, columns
from engine.store.row_sets import Column, RowSet

_UNSUPPRESSED = RowSet(
    "unsuppressed", tuple,
    Column("account_id", "uuid", itemgetter(0), repeats=True), Column("address", "text", itemgetter(1)),
)  # fmt: skip

_SQL = Queries.beside(__file__, "accept.sql")
_REPLAYS = _SQL.command("replays")
_INSERT = _SQL.wide(
    "insert_accepted", *accepted_rows.CONTENT, accepted_rows.SCHEDULED, log.EVENT, heads.HEAD,
    append_events=log.APPEND_EVENTS,
)  # fmt: skip
_ACCEPT = _SQL.session_function(
    "accept", COUNTED, _UNSUPPRESSED, *accepted_rows.CONTENT, log.UNSEALED, log.EVENT,
    returns="text", types={"wait": "interval"}, **log.SEALING,
)  # fmt: skip
_ACCEPT_COPIES = _SQL.session_function(
    "accept_copies", COUNTED, _UNSUPPRESSED, broadcast_copies.MARK, unsubscribes.LINK, *accepted_rows.CONTENT,
    log.UNSEALED, log.EVENT, returns="text", types={"wait": "interval"},
    **log.SEALING, **broadcast_copies.COPIES, links_stored=unsubscribes.LINKS_STORED,
)  # fmt: skip
_STORED = _SQL.command("stored_message")

_DONE = "done"  # the functions' answer if they stored the batch

MAX_CACHED_HEADS = 10_000  # beyond it the cache is cleared
MAX_CALL_BYTES = 1024 * 1024  # of content: a function copies its arguments


class OutcomeUnknown(Exception):  # noqa: N818 - not an error of the caller's
    """The connection failed while a batch was written or committed: `result` may or may not be stored."""

    def __init__(self, result: BatchResult, error: Exception) -> None:
        super().__init__(repr(error))
        self.result = result
        self.error = error


class Storer:
    """Stores the batches of one process, one at a time. Mail to the domain `simulator` is also counted apart."""

    def __init__(
        self, ceiling: Ceiling, *, shards: int, fresh_due_s: float, simulator: str, reserve: float = 0.0
    ) -> None:
        self._ceiling = ceiling
        self._reserve = reserve
        self._simulator = f"@{simulator}"
        self._shards = shards
        self._fresh_due = timedelta(seconds=fresh_due_s)
        self._cached: dict[UUID, AccountHead] = {}
        self._backoff = FastPathBackoff()

    async def store(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult:
        """Decide and store a batch; return after the commit. `split` holds the number of parts of split domains.

        Raises OutcomeUnknown if the connection failed at a moment that leaves open whether the batch is stored.
        """
        if self._fits_one_call(batch) and self._backoff.may_try():
            result = await self._store_in_one_call(connection, batch, at, split)
            if result is not None:
                return result
        return await self._store_locked(connection, batch, at, split)

    async def foresee(self, connection: Conn, batch: Sequence[Pending], at: datetime) -> list[Accepted | Exception]:
        """Decide a batch as `store` would, from one snapshot; lock, count and write nothing."""
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await _mark_suppressed(connection, batch)
            held = await heads.read_many(connection, {item.message.account_id for item in batch})
            await quota_usage.advance_all(connection, held, at.date())
            room = await self._ceiling.possible(connection, at.date())
            replays = await _load_replays(connection, batch)
        return decide_batch(batch, held, replays, at, room=room, reserve=self._reserve).decisions

    # -- by one call of the database -----------------------------------------------------------------

    async def _store_in_one_call(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult | None:
        """Store the batch by one call of the database if all its messages are accepted.

        Returns None if nothing was stored.
        """
        cached = self._cached_heads({item.message.account_id for item in batch}, at.date())
        has_copies = batch[0].message.copy is not None
        copies = broadcast_copies.rows_of(batch) if has_copies else ()
        if cached is None or copies is None:
            return None
        for item in batch:
            item.is_claimed = has_copies  # the call checks it
        held = {account: copy(head) for account, head in cached.items()}
        room = self._ceiling.room(at.date())
        result = decide_batch(batch, held, {}, at, room=room, reserve=self._reserve)  # the call looks up replays
        if any(isinstance(decision, Exception) for decision in result.decisions):
            return None
        counted = batch_counts.counted(cached, held, result.entries, reserve=self._reserve if has_copies else 0.0)
        recipients = [(one.account_id, recipient.canonical) for one in result.stored for recipient in one.recipients]
        events, _ = log.unsealed([one.account_id for one in counted], result.entries)
        function = _ACCEPT_COPIES if has_copies else _ACCEPT
        await function.prepare(connection)  # before a transaction with large bodies
        call = partial(
            function.run,
            connection,
            COUNTED.of(counted),
            _UNSUPPRESSED.of(recipients),
            *copies,
            *accepted_rows.content_of(result.stored, self._shards, split),
            log.UNSEALED.of(events),
            wait=self._wait(result.stored),
        )
        with _doubt_about(result):
            outcome = await _with_large_bodies(connection, result.stored, call)
        if outcome == _DONE:
            self._backoff.hit()
            self._keep(held)
            return result
        for account in held:
            self._cached.pop(account, None)
        self._backoff.miss()
        return None

    def _fits_one_call(self, batch: Sequence[Pending]) -> bool:
        """Return False if the batch needs further statements in its transaction, or decisions on locked heads."""
        size_bytes = sum([len(item.message.mime) for item in batch if not large_bodies.is_large(item.message)])
        return size_bytes <= MAX_CALL_BYTES and not any(map(self._needs_locks, batch))

    def _needs_locks(self, item: Pending) -> bool:
        message = item.message
        if item.whole is not None or item.tied is not None or message.scheduled_at is not None:
            return True
        return (bool(message.extras) and message.copy is None) or self._is_simulated(item)

    def _cached_heads(self, accounts: Collection[UUID], day: date) -> dict[UUID, AccountHead] | None:
        """Return the cached heads of these accounts and their parents, if all are cached and at that day; else None."""
        held: dict[UUID, AccountHead] = {}
        month = clock.first_of_month(day)
        for account in accounts:
            one: UUID | None = account
            while one is not None and one not in held:
                head = self._cached.get(one)
                if head is None or head.day != day or head.month != month:
                    return None
                held[one] = head
                one = head.parent_id if one is account else None
        return held

    # -- under the locks -----------------------------------------------------------------------------

    async def _store_locked(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult:
        """Decide the batch on locked heads and store it, with tied and extra rows and the marks of copies."""
        await _mark_suppressed(connection, batch)
        result = BatchResult()
        with _doubt_about(result):
            async with connection.transaction():
                await broadcast_copies.claim(connection, batch)
                locked = await heads.lock_counted(connection, {item.message.account_id for item in batch})
                await quota_usage.advance_all(connection, locked, at.date())
                replays = await _load_replays(connection, batch)
                for items in sets_of(batch):
                    made = await self._decided(connection, items, locked, replays, at, taken=len(result.stored))
                    result.add(made)
                await self._insert(connection, result, locked, split)
                await quota_usage.count_simulated(connection, self._simulated(batch, result, at.date()))
                await broadcast_copies.mark(connection, batch, result.decisions)
                await _write_extras(connection, result.stored)
        return result

    async def _decided(
        self,
        connection: Conn,
        items: Sequence[Pending],
        locked: dict[UUID, AccountHead],
        replays: Replays,
        at: datetime,
        *,
        taken: int,
    ) -> BatchResult:
        """Decide one group of a batch; check its tied rows before, and write them after, so that the next group's
        check finds them.

        `taken`: messages of the batch that were accepted before these.
        """
        item = items[0]
        head = locked.get(item.message.account_id)
        tied = None if head is None else item.tied
        if head is not None and tied is not None:
            payer = locked.get(head.parent_id or head.account_id, head)
            try:
                await tied.check(connection, head, payer, at)
            except Refusal as refusal:
                return BatchResult([refusal])
        room = self._ceiling.room(at.date()) - taken
        made = decide_together(items, locked, replays, at, room=room, reserve=self._reserve)
        if head is not None and tied is not None and made.stored:
            await tied.write(connection, item.message, head, payer, at)
        return made

    async def _insert(
        self, connection: Conn, result: BatchResult, locked: dict[UUID, AccountHead], split: Mapping[str, int]
    ) -> None:
        """Write everything under the heads' locks, and cache the heads as written."""
        await large_bodies.insert(connection, result.stored)
        events = log.seal_all(locked, result.entries)
        rows = await _INSERT.run(
            connection,
            *accepted_rows.content_of(result.stored, self._shards, split),
            accepted_rows.scheduled_of(result.stored),
            log.EVENT.of(events),
            heads.HEAD.of(locked.values()),
            wait=self._wait(result.stored),
        )
        if len(rows) != len(locked):
            raise RuntimeError("a head is gone under its lock")
        self._keep(locked)

    def _simulated(self, batch: Sequence[Pending], result: BatchResult, day: date) -> list[Simulated]:
        stored = {message.id for message in result.stored}
        return [
            Simulated(item.message.account_id, day, messages=1)
            for item in batch
            if item.message.id in stored and self._is_simulated(item)
        ]

    def _is_simulated(self, item: Pending) -> bool:
        """Return True if the message is sent now and only to the simulator's recipients."""
        message = item.message
        return goes_now(message) and all(one.mailbox.address.endswith(self._simulator) for one in message.recipients)

    def _keep(self, held: dict[UUID, AccountHead]) -> None:
        """Cache heads as they were written."""
        if len(self._cached) > MAX_CACHED_HEADS:
            self._cached.clear()
        self._cached |= held

    def _wait(self, stored: Sequence[Prepared]) -> timedelta:
        """Return how long deliveries wait for a hint before they fall due; copies of broadcasts have none."""
        return timedelta(0) if stored and all(one.copy is not None for one in stored) else self._fresh_due


async def _with_large_bodies(
    connection: Conn, stored: Sequence[Prepared], call: Callable[[], Awaitable[object]]
) -> object:
    """Return the outcome of `call`, which stores messages, in one transaction with their large bodies if there are any.

    These come first, so that the account heads, which the call locks, are not locked meanwhile.
    """
    if not any(map(large_bodies.is_large, stored)):
        return await call()
    outcome: object = None
    with suppress(_NothingStored):
        async with connection.transaction():
            await large_bodies.insert(connection, stored)
            outcome = await call()
            if outcome != _DONE:
                raise _NothingStored
    return outcome


class _NothingStored(Exception):  # noqa: N818 - named for what happened
    """The function changed nothing: the transaction with the large bodies is rolled back."""


@contextmanager
def _doubt_about(result: BatchResult) -> Iterator[None]:
    """Raise OutcomeUnknown if the connection fails while the statements within write or commit `result`."""
    try:
        yield
    except DatabaseUnavailable as error:
        # MissingPartition: refused, so nothing is stored. SessionLost: lost before the statement was sent.
        if not result.stored or isinstance(error, (MissingPartition, SessionLost)):
            raise
        raise OutcomeUnknown(result, error) from error


async def replays_of(source: Source, pairs: Iterable[tuple[UUID, str]]) -> Replays:
    """Return the messages accepted earlier under these accounts and idempotency keys, with the digests of their
    requests.
    """
    rows = await _REPLAYS.records(source, *columns(list(pairs), 2))
    return {(row["account_id"], row["key"]): (row["message_id"], row["request_digest"]) for row in rows}


async def is_stored(source: Source, message_id: UUID) -> bool:
    """Return True if the message is in the database, once a synchronous replica has it too."""
    return bool(await _STORED.records(source, message_id))


async def _load_replays(connection: Conn, batch: Sequence[Pending]) -> Replays:
    """Return keys used before; read under the heads' locks, so that parallel requests with one key see each other."""
    keys = _keys(batch)
    return await replays_of(connection, keys) if keys else {}


async def _write_extras(connection: Conn, stored: Iterable[Prepared]) -> None:
    """Write the extra rows of the stored messages, one statement for each kind of row."""
    found: dict[type[ExtraRow], list[ExtraRow]] = {}
    for message in stored:
        for extra in message.extras:
            found.setdefault(type(extra), []).append(extra)
    for kind, rows in found.items():
        await kind.write(connection, rows)


def _keys(batch: Iterable[Pending]) -> list[tuple[UUID, str]]:
    return [
        (item.message.account_id, item.message.idempotency_key)
        for item in batch
        if item.message.idempotency_key is not None
    ]


async def _mark_suppressed(connection: Conn, batch: Sequence[Pending]) -> None:
    """Look up all recipients at once, before the locks; delivery checks again for suppressions added meanwhile."""
    pairs = [(item.message.account_id, one.canonical) for item in batch for one in item.message.recipients]
    found = await suppressions.find(connection, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    for item in batch:
        message = item.message
        for one in message.recipients if found else ():
            reason = found.get((message.account_id, one.canonical))
            if reason and suppression_rules.blocks(reason, stream=message.stream, source=message.source):
                item.suppressed = (one.mailbox.address, reason)
                break
