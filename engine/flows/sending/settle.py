"""Settling: what an attempt brought becomes history in one transaction.

account heads locked → fence and queue rows checked → recipients → message status → suppressions → events →
queue row deleted or due again. Outcomes of concurrent deliveries share transactions, as acceptance does.
Settling the same attempt twice changes nothing: the queue row tells how many attempts it has seen.

Nearly all attempts are at whole messages and suppress nobody: those of a batch take one call (`settle_whole`, in
migration 0021), so that a head is locked while the server works and not while this process does. The others, and all
of a batch in which something no longer stands, go step by step.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, datetime
from uuid import UUID

import asyncpg
import orjson
import structlog
from msgspec import Struct

from engine.areas.suppressions import store as suppressions
from engine.base import clock, ids
from engine.base.events import MOVES, SETTLED, AccountEvent, EventType, Status, status_of_message
from engine.delivery.outcome import Outcome, Verdict, detail
from engine.delivery.queue import Row
from engine.ledger import heads, log, quota_usage
from engine.ledger.quota_usage import Simulated
from engine.mail.address import canonical
from engine.store.database_errors import BadData, ConstraintViolation, DatabaseUnavailable, MissingPartition
from engine.store.group_commit import GroupCommit
from engine.store.queries import Conn, Queries, columns

_SQL = Queries.beside(__file__, "settle.sql")
_STILL_OWED = _SQL.command("still_owed")
_IS_MEMBER = _SQL.command("is_member")
_UPDATE_RECIPIENTS = _SQL.command("update_recipients")
_RECIPIENT_STATUSES = _SQL.command("recipient_statuses")
_SETTLE = _SQL.command("settle")
_SETTLE_WHOLE = _SQL.command("settle_whole")

_RETRY_S = 0.5
_PLAN_ANEW_S = 1.0  # planning `settle_whole` costs 2 ms
# Each flush costs about 1 ms of CPU whatever its size, and accepting waits for the account head meanwhile:
# 15 ms more between a remote 250 and its commit is the price.
MIN_INTERVAL_S = 0.015
_MOVES_TEXT = {status: ",".join(sorted(moves)) for status, moves in MOVES.items()}

_Settle = Callable[[Sequence["Attempt"]], Awaitable[list[bool | Exception]]]

_log = structlog.get_logger("settle")


class Fenced(Exception):  # noqa: N818 - named for what happened
    """This process has lost its leases: what it did not settle belongs to others now."""


class Result(Struct, frozen=True):
    """What an attempt brought for one recipient. `suppressed` is a reason found right before the attempt."""

    place: int
    address: str
    outcome: Outcome | None
    suppressed: str | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt at a queue row. `conversation` is None when no connection was tried."""

    row: Row
    started_at: datetime
    ended_at: datetime
    results: tuple[Result, ...]
    conversation: dict[str, object] | None
    signature: bytes | None
    next_at: datetime | None  # when deferred recipients are tried again; None: they have failed
    made: bool = True  # False: it ended without having been tried
    others: dict[str, int] | None = None  # how the site answered other accounts lately, where that tells something
    simulated: bool = False  # at the simulator's recipients: it suppresses nobody and says nothing of its account


class Plan(Struct):
    """What one attempt writes."""

    attempt: Attempt
    statuses: list[tuple[Result, Status]]
    entries: list[log.Entry]

    @property
    def waiting(self) -> list[Result]:
        """Recipients that stay in the queue."""
        return [result for result, status in self.statuses if status is Status.SENDING]


class Settler:
    """Settles for one process, sharing transactions; keeps trying while Postgres is away."""

    def __init__(
        self, pool: asyncpg.Pool, member: Callable[[], UUID], *, on_flush: Callable[[int, float], None]
    ) -> None:
        self._pool = pool
        self._member = member
        self._on_flush = on_flush
        self._planned: dict[int, float] = {}  # sessions, and when they last discarded their plans
        self._group: GroupCommit[Attempt, bool] = GroupCommit(
            self._flush,
            most_waiting=1_000_000,
            least_interval_s=MIN_INTERVAL_S,
            bad_data=(BadData, ConstraintViolation),
        )

    @property
    def waiting(self) -> int:
        """Outcomes not yet in a transaction."""
        return self._group.waiting

    def settle(self, attempt: Attempt) -> "asyncio.Future[bool]":
        """Resolves to True when committed, False when the row was no longer ours to settle; or to Fenced."""
        return self._group.enqueue(attempt)

    async def settle_set(self, attempts: Sequence[Attempt]) -> list[bool | Exception]:
        """What `settle` gives for each, together: for a caller that gathers by itself."""
        return await self._group.submit_set(attempts)

    async def idle(self) -> None:
        """Wait until everything submitted is committed."""
        await self._group.idle()

    async def _flush(self, batch: Sequence[Attempt]) -> list[bool | Exception]:
        started = asyncio.get_running_loop().time()
        whole, rest = _parted(batch)
        done: list[bool | Exception] = [False] * len(batch)
        for places, settle in ((whole, self._at_once), (rest, self._transact)):
            if places:
                found = await self._until_there(settle, [batch[place] for place in places])
                for place, result in zip(places, found, strict=True):
                    done[place] = result
        self._on_flush(len(batch), asyncio.get_running_loop().time() - started)
        return done

    async def _until_there(self, settle: _Settle, batch: Sequence[Attempt]) -> list[bool | Exception]:
        """The results exist nowhere else: wait for Postgres rather than forget what was delivered."""
        while True:
            try:
                return await settle(batch)
            except BadData:
                raise
            except DatabaseUnavailable as error:
                _log.warning("settling waits", error=repr(error), attempts=len(batch))
                await asyncio.sleep(_RETRY_S)

    async def _at_once(self, batch: Sequence[Attempt]) -> list[bool | Exception]:
        """In one call; step by step where a row is no longer as it was found, to learn which."""
        plans = [plan(attempt) for attempt in batch]
        async with self._pool.acquire() as connection:
            await self._plan_anew(connection)
            [row] = await _SETTLE_WHOLE.records(connection, self._member(), *_whole_columns(plans))
        if row["said"] == "fenced":
            raise Fenced
        return [True] * len(batch) if row["said"] == "done" else await self._transact(batch)

    async def _plan_anew(self, connection: Conn) -> None:
        """Let the session forget how it read the tables when they were smaller."""
        now, session = time.monotonic(), connection.get_server_pid()
        if now - self._planned.get(session, 0.0) > _PLAN_ANEW_S:
            await connection.execute("DISCARD PLANS")
            self._planned = {known: at for known, at in self._planned.items() if now - at <= _PLAN_ANEW_S}
            self._planned[session] = now

    async def _transact(self, batch: Sequence[Attempt]) -> list[bool | Exception]:
        async with self._pool.acquire() as connection, connection.transaction():
            # First the heads, then what is owed: whoever ends rows otherwise holds the heads while doing so, and what
            # that has committed is seen by a statement that begins afterwards.
            locked = await heads.lock(connection, {attempt.row.account_id for attempt in batch})
            owed = await self._owed(connection, batch)
            done: list[bool | Exception] = []
            plans: list[Plan] = []
            for attempt in batch:
                done.append(attempt.row.key in owed)
                if attempt.row.key in owed:
                    owed.remove(attempt.row.key)  # should an attempt stand in the batch twice
                    plans.append(plan(attempt))
            if plans:
                await _write(connection, plans, locked)
            return done

    async def _owed(self, connection: Conn, batch: Sequence[Attempt]) -> set[tuple[UUID, str]]:
        member = self._member()
        rows = await _STILL_OWED.records(
            connection,
            [attempt.row.message_id for attempt in batch],
            [attempt.row.domain for attempt in batch],
            [attempt.row.attempts for attempt in batch],
            member,
        )
        if not rows and not await _IS_MEMBER.records(connection, member):
            raise Fenced
        return {(row["message_id"], row["domain"]) for row in rows}


def _parted(batch: Sequence[Attempt]) -> tuple[list[int], list[int]]:
    """Places of attempts that may be settled at once, and of those whose consequences reach further: a message with
    recipients in other rows, an address to suppress, a row that stands in the batch twice, a simulated fate."""
    whole: list[int] = []
    rest: list[int] = []
    seen: set[UUID] = set()
    for place, attempt in enumerate(batch):
        message = attempt.row.message_id
        further = len(attempt.results) < attempt.row.total or message in seen
        further = further or attempt.simulated
        further = further or any(one.outcome is not None and one.outcome.suppress for one in attempt.results)
        seen.add(message)
        (rest if further else whole).append(place)
    return whole, rest


def plan(attempt: Attempt) -> Plan:
    """Statuses and events of one attempt. Pure."""
    row = attempt.row
    message = ids.format_id(ids.Kind.MESSAGE, row.message_id)
    entries: list[log.Entry] = []

    def add(kind: EventType, text: str, at: datetime) -> None:
        entries.append(log.Entry(row.account_id, kind, text, at, row.message_id, message))

    if attempt.conversation is not None:
        talk = attempt.conversation if row.total == 1 else row.whose | attempt.conversation
        add(EventType.ATTEMPTED, log.detail_text(talk), attempt.started_at)
    statuses = []
    for result in attempt.results:
        kind, status = _consequence(result, again=attempt.next_at is not None)
        add(kind, _detail(result, attempt, kind), attempt.ended_at)
        statuses.append((result, status))
    return Plan(attempt, statuses, entries)


def _consequence(result: Result, *, again: bool) -> tuple[EventType, Status]:
    if result.suppressed is not None or result.outcome is None:
        return EventType.SUPPRESSED, Status.REJECTED
    if result.outcome.verdict is Verdict.DELIVERED:
        return EventType.DELIVERED, Status.DELIVERED
    if result.outcome.verdict is Verdict.BOUNCED:
        return EventType.BOUNCED, Status.BOUNCED
    return (EventType.DEFERRED, Status.SENDING) if again else (EventType.FAILED, Status.FAILED)


def _detail(result: Result, attempt: Attempt, kind: EventType) -> str:
    found: dict[str, object] = {"recipient": result.address}
    if result.outcome is None:
        found |= {"address": result.address, "reason": result.suppressed, "phase": "delivery"}
        return log.detail_text(found)
    found |= detail(result.outcome)
    if attempt.conversation is not None:
        found |= {key: attempt.conversation[key] for key in ("mx", "tls") if key in attempt.conversation}
    if kind is EventType.BOUNCED:
        found["suppressed"] = result.outcome.suppress
    if attempt.made:
        found["attempt"] = attempt.row.attempts + 1
    if attempt.others is not None and result.outcome.verdict is not Verdict.DELIVERED:
        found["site_lately"] = attempt.others
    if kind is EventType.DEFERRED and attempt.next_at is not None:
        found["next_attempt_at"] = clock.iso(attempt.next_at)
    if attempt.simulated:
        found["simulated"] = True
    return log.detail_text(found)


async def write(connection: Conn, plans: list[Plan]) -> None:
    """Write what the plans say within the caller's transaction, which has made sure under the locks of their accounts'
    heads that their rows still stand.

    A savepoint keeps what the transaction has done where the week's partition is missing: that has been made by then.
    """
    accounts = {one.attempt.row.account_id for one in plans}
    try:
        async with connection.transaction():
            await _write(connection, plans, await heads.lock(connection, accounts))
    except MissingPartition:
        await _write(connection, plans, await heads.lock(connection, accounts))


async def _write(connection: Conn, plans: list[Plan], heads_held: Mapping[UUID, heads.Head]) -> None:
    accounts = {one.attempt.row.account_id for one in plans}
    locked = {account: head for account, head in heads_held.items() if account in accounts}
    low, high = _bounds(plans)
    recipients = _recipient_columns(plans)
    partial = {one.attempt.row.message_id for one in plans if len(one.statuses) < one.attempt.row.total}
    stored: dict[UUID, list[Status]] = {}
    if partial:  # their status needs those of recipients in other rows: write ours first, then ask for all
        await _UPDATE_RECIPIENTS.execute(connection, *recipients, low, high)
        recipients = columns([], len(recipients))
        for row in await _RECIPIENT_STATUSES.records(connection, list(partial), low, high):
            stored[row["message_id"]] = [Status(status) for status in row["statuses"]]
    messages = _message_columns(plans, stored)
    entries = [entry for one in plans for entry in one.entries]
    entries += await _suppress(connection, plans)
    await quota_usage.count_simulated(connection, _simulated(plans))
    events = log.seal_all(locked, entries)
    await _SETTLE.execute(
        connection,
        *messages,
        *_gone_columns(plans),
        *_later_columns(plans),
        *_day_columns(plans),
        *log.columns(events),
        [head.account_id for head in locked.values()],
        [head.seq for head in locked.values()],
        [head.hash for head in locked.values()],
        low,
        high,
        *recipients,
    )


def _whole_columns(plans: list[Plan]) -> tuple[object, ...]:
    """The arguments of `settle_whole` behind the member."""
    by_account: dict[UUID, list[log.Entry]] = {}
    for one in plans:
        by_account.setdefault(one.attempt.row.account_id, []).extend(one.entries)
    accounts = sorted(by_account)
    entries = [entry for account in accounts for entry in by_account[account]]
    return (
        *_bounds(plans),
        accounts,
        [len(by_account[account]) for account in accounts],
        *columns([_row_values(one) for one in plans], 7),
        *_later_columns(plans),
        *_day_columns(plans),
        list(ids.uuid7s(len(entries))),
        [entry.type for entry in entries],
        [entry.message_id for entry in entries],
        [log.link_of(entry) for entry in entries],
        *_recipient_columns(plans),
    )


def _row_values(one: Plan) -> tuple[object, ...]:
    row = one.attempt.row
    status = status_of_message(_on_the_way([status for _, status in one.statuses]))
    return (
        row.message_id, row.domain, row.attempts, bool(one.waiting), status.value, one.attempt.ended_at,
        _MOVES_TEXT[status],
    )  # fmt: skip


def _bounds(plans: list[Plan]) -> tuple[UUID, UUID]:
    messages = [one.attempt.row.message_id for one in plans]
    return min(messages), max(messages)


def _recipient_columns(plans: list[Plan]) -> tuple[list[object], ...]:
    rows = [
        (
            one.attempt.row.message_id,
            result.place,
            status.value,
            _response(result),
            one.attempt.next_at if status is Status.SENDING else None,
            int(result.outcome is not None and one.attempt.made),
        )
        for one in plans
        for result, status in one.statuses
    ]
    return columns(rows, 6)


def _response(result: Result) -> str | None:
    if result.outcome is None:
        return f"suppressed: {result.suppressed}"
    return result.outcome.diagnostic or None


def _message_columns(plans: list[Plan], stored: dict[UUID, list[Status]]) -> tuple[list[object], ...]:
    """Message statuses. One attempt that covers all recipients decides alone; else the stored ones do."""
    decided: dict[UUID, tuple[Status, datetime, bool]] = {}
    for one in plans:
        message = one.attempt.row.message_id
        statuses = stored.get(message) or [status for _, status in one.statuses]
        reached = all(status in _REACHED for status in statuses)
        decided[message] = (status_of_message(_on_the_way(statuses)), one.attempt.ended_at, reached)
    rows = [
        (message, status.value, at if reached else None, _MOVES_TEXT[status])
        for message, (status, at, reached) in decided.items()
    ]
    return columns(rows, 4)


_REACHED = (Status.DELIVERED, Status.COMPLAINED)  # one of several may complain before the last is delivered


def _on_the_way(statuses: list[Status]) -> list[Status]:
    return [status if status in SETTLED else Status.SENDING for status in statuses]


def _gone_columns(plans: list[Plan]) -> tuple[list[object], ...]:
    rows = [one.attempt.row.key for one in plans if not one.waiting]
    return columns(rows, 2)


def _later_columns(plans: list[Plan]) -> tuple[list[object], ...]:
    rows = [
        (
            *one.attempt.row.key,
            orjson.dumps([(result.place, result.address) for result in one.waiting]).decode(),
            None if one.attempt.next_at is None else one.attempt.next_at - one.attempt.ended_at,
            one.attempt.signature,
        )
        for one in plans
        if one.waiting
    ]
    return columns(rows, 5)


async def _suppress(connection: Conn, plans: list[Plan]) -> list[log.Entry]:
    """Suppress the addresses that proved dead; one event for each that was not, or for a weaker reason."""
    rows = [
        (
            one.attempt.row.account_id,
            canonical(result.address),
            "bounce",
            one.attempt.row.message_id,
            result.outcome.diagnostic,
        )
        for one in plans
        for result, status in one.statuses
        if status is Status.BOUNCED and result.outcome is not None and result.outcome.suppress
    ]
    if not rows:
        return []
    causes = {(row[0], row[1]): ids.format_id(ids.Kind.MESSAGE, row[3]) for row in rows}
    at = clock.now()
    return [
        log.Entry(
            hit.account_id,
            AccountEvent.SUPPRESSION_ADDED,
            log.detail_text(
                {
                    "address": hit.address,
                    "reason": hit.reason,
                    "source": "delivery",
                    "message_id": causes[hit.account_id, hit.address],
                }
            ),
            at,
        )
        for hit in await suppressions.add(connection, *columns(rows, 5))
    ]


def _simulated(plans: list[Plan]) -> list[Simulated]:
    return [
        Simulated(one.attempt.row.account_id, one.attempt.ended_at.date(), settled=1, bounced=status is Status.BOUNCED)
        for one in plans
        if one.attempt.simulated
        for _, status in one.statuses
        if status in _COUNTED
    ]


_COUNTED = (Status.DELIVERED, Status.BOUNCED, Status.COMPLAINED, Status.FAILED)


def _day_columns(plans: list[Plan]) -> tuple[list[object], ...]:
    counts: dict[tuple[UUID, date], list[int]] = {}
    for one in plans:
        for _, status in one.statuses:
            if status in _COUNTED:
                key = (one.attempt.row.account_id, one.attempt.ended_at.date())
                counts.setdefault(key, [0] * len(_COUNTED))[_COUNTED.index(status)] += 1
    return columns([(*key, *found) for key, found in sorted(counts.items())], 6)
