"""Store a batch of prepared messages: decide each on its account's head, and write all of them in one transaction.

A batch is decided on the heads as the process last saw them. If all its messages are accepted, one call of a database
function locks the heads, checks that each is still accepted, and stores them. Otherwise nothing is stored and the batch
is decided under the locks: look up suppressions, lock heads, decide, store, commit. Copies of broadcasts come in large
batches, so their content is written before the heads are locked, by a call of their own or by several statements.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import date, datetime, timedelta
from operator import itemgetter
from uuid import UUID

from engine.base import clock
from engine.base.errors import Refusal, not_found
from engine.base.extra_rows import ExtraRow
from engine.ledger import batch_counts, heads, log, quota_usage
from engine.ledger.batch_counts import COUNTED, BatchCount
from engine.ledger.heads import AccountHead
from engine.ledger.quota_usage import Ceiling, Simulated
from engine.sending import accepted_rows, broadcast_copies
from engine.sending.accepted_rows import goes_now
from engine.sending.admission import Pending, Replays
from engine.sending.batch_decisions import BatchResult, decide_batch, decide_sets
from engine.sending.emails.types import Accepted, Prepared
from engine.sending.fast_path import FastPathBackoff
from engine.sending.suppressions import rules as suppression_rules
from engine.sending.suppressions import store as suppressions
from engine.sending.unsubscribes import store as unsubscribes
from engine.store.database_errors import DatabaseUnavailable, MissingPartition, SessionLost
from engine.store.queries import Conn, Queries, Source, columns
from engine.store.row_sets import Column, RowSet

Pair = tuple[UUID, str]


_UNSUPPRESSED = RowSet(
    "unsuppressed", tuple,
    Column("account_id", "uuid", itemgetter(0), repeats=True), Column("address", "text", itemgetter(1)),
)  # fmt: skip

_SQL = Queries.beside(__file__, "accept.sql")
_REPLAYS = _SQL.command("replays")
_INSERT = _SQL.wide("insert_accepted", *accepted_rows.CONTENT, log.EVENT, heads.HEAD, append_events=log.APPEND_EVENTS)
_ACCEPT = _SQL.session_function(
    "accept", COUNTED, _UNSUPPRESSED, *accepted_rows.CONTENT, log.UNSEALED, log.EVENT,
    returns="text", types={"wait": "interval"}, **log.SEALING,
)  # fmt: skip
_ACCEPT_COPIES = _SQL.session_function(
    "accept_copies", COUNTED, broadcast_copies.MARK, unsubscribes.LINK, *accepted_rows.CONTENT, log.UNSEALED, log.EVENT,
    returns="text", types={"wait": "interval"},
    **log.SEALING, **broadcast_copies.COPIES, links_stored=unsubscribes.LINKS_STORED,
)  # fmt: skip
_STORED = _SQL.command("stored_message")

MAX_CACHED_HEADS = 10_000  # beyond it the cache is cleared
MAX_CALL_BYTES = 1024 * 1024  # of content: a function copies its arguments


class OutcomeUnknown(Exception):  # noqa: N818 - not an error of the caller's
    """The connection failed while a batch was written or committed: `result` may or may not be stored."""

    def __init__(self, result: BatchResult, error: Exception) -> None:
        super().__init__(repr(error))
        self.result = result
        self.error = error


class _DecidedOtherwise(Exception):  # noqa: N818 - named for what happened
    """A head changed while a batch was written, so that other messages are accepted."""


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
        await _mark_suppressed(connection, batch)
        if all(item.message.copy is not None and not self._is_simulated(item) for item in batch):
            result = await self._store_copies_in_one_call(connection, batch, at, split)
            if result is not None:
                return result
            try:
                return await self._store_copies(connection, batch, at, split)
            except _DecidedOtherwise:
                pass  # decided again under the locks
        return await self._store_locked(connection, batch, at, split)

    async def foresee(self, connection: Conn, batch: Sequence[Pending], at: datetime) -> list[Accepted | Exception]:
        """Decide a batch as `store` would, from one snapshot; lock, count and write nothing."""
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await _mark_suppressed(connection, batch)
            held = await _read_heads(connection, {item.message.account_id for item in batch})
            await quota_usage.advance_all(connection, held, at.date())
            room = await self._ceiling.possible(connection, at.date())
            replays = await _load_replays(connection, batch)
        return decide_batch(batch, held, replays, at, room=room, reserve=self._reserve).decisions

    async def store_tied(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult:
        """Decide and store a batch of messages together with the rows that are tied to each; return after the commit.

        Raises OutcomeUnknown as `store` does.
        """
        result = BatchResult()
        try:
            async with connection.transaction():
                await _mark_suppressed(connection, batch)
                locked = await heads.lock_counted(connection, {item.message.account_id for item in batch})
                await quota_usage.advance_all(connection, locked, at.date())
                for item in batch:
                    await self._decide_tied(connection, item, locked, result, at)
                await self._insert(connection, result, locked, split)
                await quota_usage.count_simulated(connection, self._simulated(batch, result, at.date()))
        except DatabaseUnavailable as error:
            if _may_be_stored(result, error):
                raise OutcomeUnknown(result, error) from error
            raise
        return result

    async def _decide_tied(
        self, connection: Conn, item: Pending, locked: dict[UUID, AccountHead], result: BatchResult, at: datetime
    ) -> None:
        """Check the item's rows, decide its message, and write its rows: the next item's checks find them."""
        head, tied = locked.get(item.message.account_id), item.tied
        assert tied is not None
        if head is None:
            result.decisions.append(not_found("account"))
            return
        payer = locked.get(head.parent_id or head.account_id, head)
        try:
            await tied.check(connection, head, payer, at)
        except Refusal as refusal:
            result.decisions.append(refusal)
            return
        made = self._decide([item], locked, at, taken=len(result.stored))
        result.decisions += made.decisions
        result.entries += made.entries
        result.stored += made.stored
        if made.stored:
            await tied.write(connection, item.message, head, payer, at)

    async def _store_in_one_call(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult | None:
        """Store the batch by one call of the database if all its messages are accepted.

        Returns None if nothing was stored.
        """
        cached = self._cached_heads({item.message.account_id for item in batch}, at.date())
        if cached is None:
            return None
        held = {account: copy(head) for account, head in cached.items()}
        result = self._decide(batch, held, at)
        if any(isinstance(decision, Exception) for decision in result.decisions):
            return None
        counted = batch_counts.counted(cached, held, result.entries)
        recipients = [(one.account_id, recipient.canonical) for one in result.stored for recipient in one.recipients]
        try:
            is_stored = await self._accept(connection, result, counted, recipients, split)
        except DatabaseUnavailable as error:
            if _may_be_stored(result, error):
                raise OutcomeUnknown(result, error) from error
            raise
        if is_stored:
            self._backoff.hit()
            self._keep(held)
            return result
        for account in held:
            self._cached.pop(account, None)
        self._backoff.miss()
        return None

    async def _store_locked(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult:
        result = BatchResult()
        try:
            async with connection.transaction():
                await broadcast_copies.claim(connection, batch)
                locked = await heads.lock_counted(connection, {item.message.account_id for item in batch})
                await quota_usage.advance_all(connection, locked, at.date())
                replays = await _load_replays(connection, batch)
                room = self._ceiling.room(at.date())
                result = decide_sets(batch, locked, replays, at, room=room, reserve=self._reserve)
                await self._insert(connection, result, locked, split)
                await quota_usage.count_simulated(connection, self._simulated(batch, result, at.date()))
                await broadcast_copies.mark(connection, batch, result.decisions)
                await _write_extras(connection, result.stored)
        except DatabaseUnavailable as error:
            if _may_be_stored(result, error):
                raise OutcomeUnknown(result, error) from error
            raise
        return result

    async def _store_copies_in_one_call(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult | None:
        """Store copies of broadcasts by one call of the database if all of them are accepted.

        Returns None if nothing was stored.
        """
        marks = broadcast_copies.accepted_marks(batch)
        links = broadcast_copies.links_of(batch)
        if len(marks) < len(batch) or links is None or not _fits_call(batch):
            return None
        accounts = {item.message.account_id for item in batch}
        before = self._cached_heads(accounts, at.date())
        if before is None:
            before = await heads.read_many(connection, accounts)
            await quota_usage.advance_all(connection, before, at.date())
        held = {account: copy(head) for account, head in before.items()}
        for item in batch:
            item.is_claimed = True  # the call checks it
        result = self._decide(batch, held, at)
        if any(isinstance(decision, Exception) for decision in result.decisions):
            return None
        counted = batch_counts.counted(before, held, result.entries, reserve=self._reserve)
        events, _ = log.unsealed([one.account_id for one in counted], result.entries)
        try:
            outcome = await _ACCEPT_COPIES.run(
                connection,
                COUNTED.of(counted),
                broadcast_copies.MARK.of(marks),
                unsubscribes.LINK.of(links),
                *accepted_rows.content_of(result.stored, self._shards, split),
                log.UNSEALED.of(events),
                wait=self._wait(result.stored),
            )
        except DatabaseUnavailable as error:
            if _may_be_stored(result, error):
                raise OutcomeUnknown(result, error) from error
            raise
        if outcome == "done":
            self._keep(held)
            return result
        for account in held:
            self._cached.pop(account, None)
        return None

    async def _store_copies(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int]
    ) -> BatchResult:
        """Store copies of broadcasts with short locks: decide on the heads as they are, write the content, and only
        then lock the heads, in the call that checks the decisions and appends the events.

        Raises _DecidedOtherwise, with nothing written, if one of the messages is not accepted any more.
        """
        result = BatchResult()
        await _ACCEPT.prepare(connection)
        try:
            async with connection.transaction():
                await broadcast_copies.claim(connection, batch)
                before = await heads.read_many(connection, {item.message.account_id for item in batch})
                await quota_usage.advance_all(connection, before, at.date())
                held = {account: copy(head) for account, head in before.items()}
                decided = self._decide(batch, held, at)
                await self._insert(connection, BatchResult(stored=decided.stored), {}, split)
                await _write_extras(connection, decided.stored)
                await broadcast_copies.mark(connection, batch, decided.decisions)
                counted = batch_counts.counted(before, held, decided.entries, reserve=self._reserve)
                if not await self._accept(connection, BatchResult(entries=decided.entries), counted, [], split):
                    raise _DecidedOtherwise
                result = decided
        except DatabaseUnavailable as error:
            if _may_be_stored(result, error):
                raise OutcomeUnknown(result, error) from error
            raise
        return result

    def _simulated(self, batch: Sequence[Pending], result: BatchResult, day: date) -> list[Simulated]:
        stored = {message.id for message in result.stored}
        return [
            Simulated(item.message.account_id, day, messages=1)
            for item in batch
            if item.message.id in stored and self._is_simulated(item)
        ]

    def _fits_one_call(self, batch: Sequence[Pending]) -> bool:
        """Return False if the batch needs further statements in its transaction, or decisions on locked heads."""
        return _fits_call(batch) and not any(map(self._needs_locks, batch))

    def _needs_locks(self, item: Pending) -> bool:
        message = item.message
        if message.extras or message.copy is not None or item.whole is not None or message.scheduled_at is not None:
            return True
        return self._is_simulated(item)

    def _is_simulated(self, item: Pending) -> bool:
        """Return True if the message is sent now and only to the simulator's recipients."""
        message = item.message
        return goes_now(message) and all(one.mailbox.address.endswith(self._simulator) for one in message.recipients)

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

    def _decide(
        self, batch: Sequence[Pending], held: dict[UUID, AccountHead], at: datetime, *, taken: int = 0
    ) -> BatchResult:
        """Decide messages without looking up their idempotency keys; `taken` were accepted before them."""
        room = self._ceiling.room(at.date()) - taken
        return decide_batch(batch, held, {}, at, room=room, reserve=self._reserve)

    async def _accept(
        self,
        connection: Conn,
        result: BatchResult,
        counted: Sequence[BatchCount],
        unsuppressed: Sequence[Pair],
        split: Mapping[str, int],
    ) -> bool:
        """Lock the heads, and write everything if all messages are still accepted; return False if nothing was
        written.
        """
        events, _ = log.unsealed([one.account_id for one in counted], result.entries)
        outcome = await _ACCEPT.run(
            connection,
            COUNTED.of(counted),
            _UNSUPPRESSED.of(unsuppressed),
            *accepted_rows.content_of(result.stored, self._shards, split),
            log.UNSEALED.of(events),
            wait=self._wait(result.stored),
        )
        return outcome == "done"

    async def _insert(
        self, connection: Conn, result: BatchResult, locked: dict[UUID, AccountHead], split: Mapping[str, int]
    ) -> None:
        """Write everything under the heads' locks, and cache the heads as written."""
        events = log.seal_all(locked, result.entries)
        rows = await _INSERT.run(
            connection,
            *accepted_rows.content_of(result.stored, self._shards, split),
            log.EVENT.of(events),
            heads.HEAD.of(locked.values()),
            wait=self._wait(result.stored),
        )
        if len(rows) != len(locked):
            raise RuntimeError("a head is gone under its lock")
        self._keep(locked)

    def _keep(self, held: dict[UUID, AccountHead]) -> None:
        """Cache heads as they were written."""
        if len(self._cached) > MAX_CACHED_HEADS:
            self._cached.clear()
        self._cached |= held

    def _wait(self, stored: Sequence[Prepared]) -> timedelta:
        """Return how long deliveries wait for a hint before they fall due; copies of broadcasts have none."""
        return timedelta(0) if stored and all(one.copy is not None for one in stored) else self._fresh_due


def _fits_call(batch: Sequence[Pending]) -> bool:
    return sum([len(item.message.mime) for item in batch]) <= MAX_CALL_BYTES


def _may_be_stored(result: BatchResult, error: Exception) -> bool:
    """Return whether the batch may be stored although `error` was raised while it was written or committed."""
    # SessionLost: the connection was lost before the statement was sent.
    return bool(result.stored) and not isinstance(error, (MissingPartition, SessionLost))


async def replays_of(source: Source, pairs: Iterable[tuple[UUID, str]]) -> Replays:
    """Return the messages accepted earlier under these accounts and idempotency keys, with the digests of their
    requests.
    """
    rows = await _REPLAYS.records(source, *columns(list(pairs), 2))
    return {(row["account_id"], row["key"]): (row["message_id"], row["request_digest"]) for row in rows}


async def is_stored(source: Source, message: Prepared) -> bool:
    """Return True if the message is in the database."""
    return bool(await _STORED.records(source, message.id))


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


async def _read_heads(connection: Conn, accounts: Collection[UUID]) -> dict[UUID, AccountHead]:
    """Return the heads of these accounts and of their parents as last committed, without locks."""
    found: dict[UUID, AccountHead] = {}
    for account in accounts:
        one: UUID | None = account
        while one is not None and one not in found and (head := await heads.read(connection, one)) is not None:
            found[one] = head
            one = head.parent_id
    return found


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
