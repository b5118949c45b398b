"""Derive events, statuses and row sets from delivery attempts, for the statement that settles a batch. Pure."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock, ids, trace_context
from engine.base.events import MOVES, SETTLED, EventType, Status, status_of_message
from engine.delivery.outcome import Outcome, Verdict, detail
from engine.delivery.queue import Row
from engine.delivery.sealed_mail import cut_out
from engine.delivery.wait_reasons import UntriedReason
from engine.delivery.waits import WaitCause, stored
from engine.ledger import log
from engine.ledger.quota_usage import Simulated
from engine.store.row_sets import Column, RowSet

_MOVES_TEXT = {status: ",".join(sorted(moves)) for status, moves in MOVES.items()}


class Result(Struct, frozen=True):
    """The outcome of an attempt for one recipient; `suppressed` is the reason if the address was already suppressed."""

    place: int
    address: str
    outcome: Outcome | None
    suppressed: str | None = None


class DeliveryAttempt(Struct, frozen=True, kw_only=True):
    """An attempt at a queue row. `conversation` is None if no connection was tried."""

    row: Row
    started_at: datetime
    ended_at: datetime
    results: tuple[Result, ...]
    conversation: dict[str, object] | None
    signature: bytes | None
    next_at: datetime | None  # of deferred recipients; None: they have failed
    untried: UntriedReason | None = None  # the row ended without a delivery try, which does not count as an attempt
    others: dict[str, int] | None = None  # recent outcomes of other accounts at the site, if they explain this one
    simulated: bool = False  # to simulator recipients: suppresses no address and is not held against the account
    waits: dict[WaitCause, int] | None = None  # ms since the outcome before or the message's creation, by cause
    fair_share: float = 1.0  # of the site's connections, while it waited there

    @property
    def wait_detail(self) -> dict[str, object]:
        """Return the waiting time for the detail of an event."""
        if self.waits is None:
            return {}
        waits = {cause.value: ms for cause, ms in self.waits.items()}
        return {"waits": waits} | ({"fair_share": self.fair_share} if self.fair_share < 1.0 else {})


class SettlingPlan(Struct):
    """The statuses and events that result from an attempt."""

    attempt: DeliveryAttempt
    statuses: list[tuple[Result, Status]]
    entries: list[log.Entry]

    @property
    def waiting(self) -> list[Result]:
        """Return the results of recipients that stay in the queue."""
        return [result for result, status in self.statuses if status is Status.SENDING]


def plan(attempt: DeliveryAttempt) -> SettlingPlan:
    """Return the statuses and events of an attempt; those of a sealed message do not name its recipient."""
    row = attempt.row
    message = ids.format_id(ids.Kind.MESSAGE, row.message_id)
    traced = trace_context.detail_of(row.traceparent)
    entries: list[log.Entry] = []

    def add(kind: EventType, text: str, at: datetime) -> None:
        entries.append(log.Entry(row.account_id, kind, text, at, row.message_id, message))

    if attempt.conversation is not None:
        # The waiting time comes before the conversation, because analytics read the beginning alone.
        talk: object = traced | row.event_scope | attempt.wait_detail | attempt.conversation
        if row.is_sealed:
            talk = cut_out(talk, attempt.results[0].address)
        add(EventType.ATTEMPTED, log.detail_text(talk), attempt.started_at)
    statuses = []
    for result in attempt.results:
        kind, status = _consequence(result, attempt)
        add(kind, _detail(result, attempt, kind), attempt.ended_at)
        statuses.append((result, status))
    return SettlingPlan(attempt, statuses, entries)


def _consequence(result: Result, attempt: DeliveryAttempt) -> tuple[EventType, Status]:
    if result.suppressed is not None or result.outcome is None:
        return EventType.SUPPRESSED, Status.REJECTED
    if result.outcome.verdict is Verdict.DELIVERED:
        return EventType.DELIVERED, Status.DELIVERED
    if result.outcome.verdict is Verdict.BOUNCED:
        return EventType.BOUNCED, Status.BOUNCED
    if attempt.next_at is not None:
        return EventType.DEFERRED, Status.SENDING
    if attempt.untried is not None and not attempt.row.attempts:
        return EventType.REJECTED, Status.REJECTED
    return EventType.FAILED, Status.FAILED


def _detail(result: Result, attempt: DeliveryAttempt, kind: EventType) -> str:
    found: dict[str, object] = trace_context.detail_of(attempt.row.traceparent) | {"recipient": result.address}
    if attempt.conversation is None:
        found |= attempt.wait_detail
    if result.outcome is None:
        found |= {"address": result.address, "reason": result.suppressed, "phase": "delivery"}
        return _detail_text(found, result, attempt)
    found |= detail(result.outcome)
    if attempt.conversation is not None:
        found |= {key: attempt.conversation[key] for key in ("mx", "tls") if key in attempt.conversation}
    if kind is EventType.BOUNCED:
        found["suppressed"] = result.outcome.suppress
    if attempt.untried is not None:
        found["reason"] = attempt.untried
    else:
        found["attempt"] = attempt.row.attempts + 1
    if attempt.others is not None and result.outcome.verdict is not Verdict.DELIVERED:
        found["site_lately"] = attempt.others
    if kind is EventType.DEFERRED and attempt.next_at is not None:
        found["next_attempt_at"] = clock.iso(attempt.next_at)
    if attempt.simulated:
        found["simulated"] = True
    return _detail_text(found, result, attempt)


def _detail_text(found: dict[str, object], result: Result, attempt: DeliveryAttempt) -> str:
    return log.detail_text(cut_out(found, result.address) if attempt.row.is_sealed else found)


class SettledRecipient(Struct, frozen=True):
    """A recipient after an attempt; `made` is 1 if the attempt counts, else 0."""

    message_id: UUID
    n: int
    status: str
    last_response: str | None
    next_attempt_at: datetime | None
    made: int


class SettledMessage(Struct, frozen=True):
    """A message's new status, valid if its present one is among `moves`, comma-separated."""

    id: UUID
    status: str
    delivered_at: datetime | None
    moves: str


class AttemptedRow(Struct, frozen=True):
    """A queue row as its attempt found it; `ends` if no recipient is left, `forgets` as the row does."""

    message_id: UUID
    domain: str
    attempts: int
    ends: bool
    forgets: bool


class RetriedRow(Struct, frozen=True):
    """A queue row that is due again after `wait`, with its remaining recipients as JSON."""

    message_id: UUID
    domain: str
    recipients: str
    wait: timedelta | None
    signature: bytes | None
    waits: str


class SettledDay(Struct):
    """Recipients settled on an account's day, by outcome."""

    account_id: UUID
    day: date
    delivered: int = 0
    bounced: int = 0
    complained: int = 0
    failed: int = 0


RECIPIENT = RowSet(
    "recipient",
    SettledRecipient,
    Column("message_id"),
    Column("n", "smallint"),
    Column("status", repeats=True),
    Column("last_response"),
    Column("next_attempt_at"),
    Column("made", "smallint", repeats=True),
)
MESSAGE = RowSet(
    "message",
    SettledMessage,
    Column("id"),
    Column("status", repeats=True),
    Column("delivered_at"),
    Column("moves", repeats=True),
)
FOUND = RowSet(
    "found",
    AttemptedRow,
    Column("message_id"),
    Column("domain"),
    Column("attempts", "smallint", repeats=True),
    Column("ends", repeats=True),
    Column("forgets", repeats=True),
)
LATER = RowSet(
    "later",
    RetriedRow,
    Column("message_id"),
    Column("domain"),
    Column("recipients", "jsonb"),
    Column("wait"),
    Column("signature"),
    Column("waits"),
)
DAY = RowSet(
    "day",
    SettledDay,
    Column("account_id"),
    Column("day"),
    *[Column(outcome, "integer") for outcome in ("delivered", "bounced", "complained", "failed")],
)


def settled_recipients(plans: list[SettlingPlan]) -> list[SettledRecipient]:
    return [
        SettledRecipient(
            one.attempt.row.message_id,
            result.place,
            status,
            _response(result, one.attempt.row),
            one.attempt.next_at if status is Status.SENDING else None,
            int(result.outcome is not None and one.attempt.untried is None),
        )
        for one in plans
        for result, status in one.statuses
    ]


def _response(result: Result, row: Row) -> str | None:
    if result.outcome is None:
        return f"suppressed: {result.suppressed}"
    diagnostic = result.outcome.diagnostic or None
    return str(cut_out(diagnostic, result.address)) if diagnostic and row.is_sealed else diagnostic


def settled_messages(plans: list[SettlingPlan], stored: dict[UUID, list[Status]]) -> list[SettledMessage]:
    """Return the new status of each message: from its attempt if that covers all recipients, else from `stored`."""
    decided: dict[UUID, SettledMessage] = {}
    for one in plans:
        message = one.attempt.row.message_id
        statuses = stored.get(message) or [status for _, status in one.statuses]
        reached = all(status in _REACHED for status in statuses)
        status = status_of_message([status if status in SETTLED else Status.SENDING for status in statuses])
        delivered_at = one.attempt.ended_at if reached else None
        decided[message] = SettledMessage(message, status, delivered_at, _MOVES_TEXT[status])
    return list(decided.values())


_REACHED = (Status.DELIVERED, Status.COMPLAINED)  # a recipient may complain before the last one is delivered


def found(one: SettlingPlan) -> AttemptedRow:
    """Return the queue row of the plan's attempt."""
    row = one.attempt.row
    return AttemptedRow(row.message_id, row.domain, row.attempts, not one.waiting, row.forgets)


def retried(one: SettlingPlan) -> RetriedRow:
    attempt = one.attempt
    left = orjson.dumps([(result.place, result.address) for result in one.waiting]).decode()
    if attempt.row.is_sealed and one.waiting:
        left = attempt.row.recipients
    wait = None if attempt.next_at is None else attempt.next_at - attempt.ended_at
    waits = stored(attempt.ended_at, {}, {WaitCause.RETRY: 1.0})
    return RetriedRow(*attempt.row.key, left, wait, attempt.signature, waits)


def simulated(plans: list[SettlingPlan]) -> list[Simulated]:
    return [
        Simulated(one.attempt.row.account_id, one.attempt.ended_at.date(), settled=1, bounced=status is Status.BOUNCED)
        for one in plans
        if one.attempt.simulated
        for _, status in one.statuses
        if status in _COUNTED
    ]


_COUNTED = (Status.DELIVERED, Status.BOUNCED, Status.COMPLAINED, Status.FAILED)


def day_counts(plans: list[SettlingPlan]) -> Iterable[SettledDay]:
    counts: dict[tuple[UUID, date], SettledDay] = {}
    for one in plans:
        for _, status in one.statuses:
            if status in _COUNTED:
                key = (one.attempt.row.account_id, one.attempt.ended_at.date())
                day = counts.setdefault(key, SettledDay(*key))
                setattr(day, status.value, getattr(day, status.value) + 1)
    return [counts[key] for key in sorted(counts)]
