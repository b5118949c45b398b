"""Storing a batch of prepared messages: every decision on its account's head, all rows in one transaction.

Who stores remembers the heads as he left them. Where nobody has touched them since, a batch is decided on what is
remembered and stored by one statement that makes sure of it; where somebody has, nothing is stored and the batch goes
the sure way: suppressions looked up, heads locked, decided, stored, committed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import date, datetime, timedelta
from uuid import UUID

from msgspec import Struct

from engine.areas.emails.types import Accepted, Prepared
from engine.areas.suppressions import rules as suppression_rules
from engine.areas.suppressions import store as suppressions
from engine.base import clock
from engine.base.errors import ErrorType, Refusal, not_found
from engine.flows.sending import accepted_rows
from engine.flows.sending.admission import Pending, Replays, decide
from engine.ledger import heads, log, quota_usage
from engine.ledger.heads import Head
from engine.ledger.quota_usage import Ceiling, Simulated
from engine.store.queries import Conn, Queries, Source, columns, thinned

_SQL = Queries.beside(__file__, "accept.sql")
_REPLAYS = _SQL.command("replays")
_INSERT = _SQL.command("insert_accepted")
_STORED = _SQL.command("stored_message")

_OF_ONE = frozenset({0})  # pairs are mostly of one account
MAX_KNOWN = 10_000  # heads remembered; all are forgotten beyond
MAX_CAUTION = 5  # misses in a row that are counted: 31 batches go the sure way after as many


class Storer:
    """Stores the batches of one process, one at a time. `simulator`: the domain whose mail is counted apart, too."""

    def __init__(self, ceiling: Ceiling, *, shards: int, fresh_due_s: float, simulator: str) -> None:
        self._ceiling = ceiling
        self._simulator = f"@{simulator}"
        self._shards = shards
        self._fresh_due = timedelta(seconds=fresh_due_s)
        self._known: dict[UUID, Head] = {}
        self._odds = Odds()
        self._split: Mapping[str, int] = {}

    async def store(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, split: Mapping[str, int], made: "Made"
    ) -> None:
        """Decide and store, and return after the commit; `split` tells the parts of domains that are split.

        `made` is filled before Postgres is asked to write it: should there be no answer, the caller knows what to look
        for.
        """
        self._split = split
        sure = any(map(self._is_simulated, batch))  # it has a count more to write, within the same transaction
        if not sure and self._odds.good() and await self._store_as_remembered(connection, batch, at, made):
            return
        made.clear()
        await _mark_suppressed(connection, batch)
        async with connection.transaction():
            await self._store_locked(connection, batch, at, made)

    async def _store_as_remembered(
        self, connection: Conn, batch: Sequence[Pending], at: datetime, made: "Made"
    ) -> bool:
        """One statement that stores the batch if the heads stand as remembered, no recipient is suppressed and no
        idempotency key was used before. False: nothing was stored."""
        held = self._remembered({item.message.account_id for item in batch}, at.date())
        if held is None:
            return False
        self._decide(made, batch, held, {}, at)
        recipients = [(item.message.account_id, one.canonical) for item in batch for one in item.message.recipients]
        written = await self._insert(connection, made, held, _Sure(recipients, _keys(batch)))
        if written:
            self._odds.hit()
            return True
        for account in held:
            del self._known[account]
        self._odds.miss()
        return False

    async def _store_locked(self, connection: Conn, batch: Sequence[Pending], at: datetime, made: "Made") -> None:
        locked = await heads.lock_counted(connection, {item.message.account_id for item in batch})
        await quota_usage.turn_all(connection, locked, at.date())
        self._decide(made, batch, locked, await _load_replays(connection, batch), at)
        if not await self._insert(connection, made, locked):
            raise RuntimeError("a head changed under its lock")
        stored = {message.id for message in made.stored}
        await quota_usage.count_simulated(
            connection,
            [
                Simulated(item.message.account_id, at.date(), messages=1)
                for item in batch
                if item.message.id in stored and self._is_simulated(item)
            ],
        )

    def _is_simulated(self, item: Pending) -> bool:
        """Whether it counts now, and goes to the simulator's recipients alone."""
        message = item.message
        return goes_now(message) and all(one.mailbox.address.endswith(self._simulator) for one in message.recipients)

    def _remembered(self, accounts: Collection[UUID], day: date) -> dict[UUID, Head] | None:
        """Copies of the heads of these accounts and of their parents, if all are known and stand at the day."""
        held: dict[UUID, Head] = {}
        month = clock.first_of_month(day)
        for account in accounts:
            one: UUID | None = account
            while one is not None and one not in held:
                head = self._known.get(one)
                if head is None or head.day != day or head.month != month:
                    return None
                held[one] = copy(head)
                one = head.parent_id if one is account else None
        return held

    def _decide(
        self, made: "Made", batch: Sequence[Pending], held: dict[UUID, Head], replays: Replays, at: datetime
    ) -> None:
        """The decisions in order, counted on the heads."""
        room = self._ceiling.room(at.date())
        for item in batch:
            message = item.message
            head = held.get(message.account_id)
            if head is None or head.status == "closing":  # its erasure began after authentication
                made.decisions.append(not_found("account"))
                continue
            parent = None if head.parent_id is None else held.get(head.parent_id)
            decision = decide(item, head, replays, room=room, at=at, parent=parent)
            if isinstance(decision, Accepted) and decision.status != "duplicate":
                room -= goes_now(message)
                made.stored.append(message)
                made.entries.append(accepted_rows.first_entry(message, at))
                if message.idempotency_key is not None:
                    key = (message.account_id, message.idempotency_key)
                    replays[key] = (message.id, message.request_digest)
            elif isinstance(decision, Refusal) and decision.kind is ErrorType.SUPPRESSED and item.suppressed:
                made.entries.append(accepted_rows.suppressed_entry(message, item.suppressed, at))
            made.decisions.append(decision)

    async def _insert(
        self,
        connection: Conn,
        made: "Made",
        held: dict[UUID, Head],
        sure: "_Sure | None" = None,
    ) -> bool:
        """Whether all of it was written; then the heads are remembered as they stand now.

        Under the heads' locks (`sure` None) nothing is checked again: an account's row read behind a wait for its head
        may be of another version already.
        """
        heads_now, free, fresh = (held.values(), sure.free, sure.fresh) if sure else ((), (), ())
        events = log.seal_all(held, made.entries)
        rows = await _INSERT.records(
            connection,
            *accepted_rows.message_columns(made.stored),
            *accepted_rows.recipient_columns(made.stored),
            *accepted_rows.queue_columns(filter(goes_now, made.stored), self._shards, self._split, self._fresh_due),
            *accepted_rows.schedule_columns(made.stored),
            *accepted_rows.event_columns(events),
            *accepted_rows.once_columns(made.stored),
            *heads.columns(held.values()),
            [head.version for head in heads_now] or [None] * len(held),
            [head.account_version for head in heads_now] or [None] * len(held),
            *thinned(columns(free, 2), _OF_ONE),
            *columns(fresh, 2),
        )
        if len(rows) != len(held):
            return False
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        for row in rows:
            head = held[row["account_id"]]
            head.version = row["version"]
            self._known[row["account_id"]] = head
        return True


class _Sure(Struct):
    """What the statement makes sure of beside the heads' versions."""

    free: Sequence[tuple[UUID, str]]  # accounts and addresses that are not suppressed
    fresh: Sequence[tuple[UUID, str]]  # accounts and idempotency keys that were not used


class Odds:
    """Whether it pays to store without looking first: after each miss in a row, twice as many batches look."""

    def __init__(self) -> None:
        self._misses = 0
        self._looking = 0

    def good(self) -> bool:
        """Ask once a batch."""
        if self._looking == 0:
            return True
        self._looking -= 1
        return False

    def hit(self) -> None:
        """It was stored."""
        self._misses = 0

    def miss(self) -> None:
        """It was not."""
        self._misses = min(self._misses + 1, MAX_CAUTION)
        self._looking = 2**self._misses - 1


class Made(Struct):
    """What is decided of a batch: one decision per message, and what is to be written."""

    decisions: list[Accepted | Exception] = []
    stored: list[Prepared] = []
    entries: list[log.Entry] = []

    def clear(self) -> None:
        """Nothing is decided."""
        self.decisions, self.stored, self.entries = [], [], []


def goes_now(message: Prepared) -> bool:
    """Whether it is sent at once, not at a time of its own."""
    return message.scheduled_at is None


async def replays_of(source: Source, pairs: Iterable[tuple[UUID, str]]) -> Replays:
    """Messages accepted earlier under these accounts and idempotency keys, with the digests of their requests."""
    rows = await _REPLAYS.records(source, *columns(list(pairs), 2))
    return {(row["account_id"], row["key"]): (row["message_id"], row["request_digest"]) for row in rows}


async def is_stored(source: Source, message: Prepared) -> bool:
    """Whether it lies in the database by now."""
    return bool(await _STORED.records(source, message.id))


async def _load_replays(connection: Conn, batch: Sequence[Pending]) -> Replays:
    """Keys used before. Asked under the heads' locks, so that parallel posts of one key see each other."""
    keys = _keys(batch)
    return await replays_of(connection, keys) if keys else {}


def _keys(batch: Iterable[Pending]) -> list[tuple[UUID, str]]:
    return [
        (item.message.account_id, item.message.idempotency_key)
        for item in batch
        if item.message.idempotency_key is not None
    ]


async def _mark_suppressed(connection: Conn, batch: Sequence[Pending]) -> None:
    """Look every recipient up at once. Before the locks: a suppression of this very moment is caught again right
    before the attempt."""
    pairs = [(item.message.account_id, one.canonical) for item in batch for one in item.message.recipients]
    found = await suppressions.find(connection, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    for item in batch:
        for one in item.message.recipients if found else ():
            reason = found.get((item.message.account_id, one.canonical))
            if reason is not None and suppression_rules.blocks(reason, item.message.stream):
                item.suppressed = (one.mailbox.address, reason)
                break
