"""Derive the status of a message after each of its events from the log alone, and read payloads. Pure.

Tails filter by this status. With the current status instead, a reader that reconnects would get other events than one
that stayed connected.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from engine.base import ids
from engine.base.events import SETTLED, EventType, Status, status_of_message
from engine.events.tails.types import Event, EventFilters, StepRow, TailRow

SKEW: Final = timedelta(days=1)  # max. clock difference between hosts that write one log
_NO_DETAIL: Final = Raw(b"{}")
_TYPES: Final = frozenset(EventType)
_TAGS = msgspec.json.Decoder(list[str])

# Status of a message with one recipient after an event; `queued` does not change it.
STATUS_AFTER: Final[Mapping[str, Status]] = {
    EventType.ACCEPTED: Status.QUEUED,
    EventType.ATTEMPTED: Status.SENDING,
    EventType.DEFERRED: Status.SENDING,
    EventType.DELIVERED: Status.DELIVERED,
    EventType.BOUNCED: Status.BOUNCED,
    EventType.COMPLAINED: Status.COMPLAINED,
    EventType.FAILED: Status.FAILED,
    EventType.REJECTED: Status.REJECTED,
    EventType.SUPPRESSED: Status.REJECTED,
    EventType.SCHEDULED: Status.SCHEDULED,
    EventType.SCHEDULE_CANCELED: Status.CANCELED,
    EventType.SCHEDULE_FAILED: Status.REJECTED,
}


class Payload(Struct, rename="camel"):
    """A stored payload with its detail not decoded."""

    message_id: str | None
    detail: Raw


class _Step(Struct):
    recipient: str | None = None
    phase: str | None = None


class _Steps(Struct):
    detail: _Step


_PAYLOAD = msgspec.json.Decoder(Payload)
_STEPS = msgspec.json.Decoder(_Steps)


def detail_of(payload: str) -> Raw:
    """Return the detail of a stored payload as raw JSON; an empty object if the payload is damaged."""
    try:
        return _PAYLOAD.decode(payload).detail
    except (msgspec.DecodeError, ValueError):
        return _NO_DETAIL


def is_of_message(kind: str) -> bool:
    """Return True for the thirteen event types of waybills, False for events of the account."""
    return kind in _TYPES


def with_history(rows: Iterable[TailRow]) -> list[UUID]:
    """Return the messages whose status after these events depends on earlier events."""
    return list({
        row.message_id
        for row in rows
        if row.message_id is not None and ((row.recipient_count or 1) > 1 or row.type == EventType.QUEUED)
    })  # fmt: skip


def events(rows: Iterable[TailRow], steps: Iterable[StepRow]) -> Iterator[Event | None]:
    """Return the rows as events, None for events of the account.

    `steps` are the events of the messages that `with_history` returned.
    """
    row_list = list(rows)
    counts = {row.message_id: row.recipient_count or 1 for row in row_list if row.message_id is not None}
    known = _statuses(counts, steps)
    for row in row_list:
        if not is_of_message(row.type):
            yield None
            continue
        status = None
        if row.message_id is not None:
            status = known.get(row.seq) or STATUS_AFTER.get(row.type)
        yield _event(row, status)


def _event(row: TailRow, status: Status | None) -> Event:
    return Event(
        row.seq,
        row.id,
        row.type,
        row.created_at,
        row.message_id,
        status,
        row.sender,
        [(name, address) for name, address in row.recipients],
        row.subject,
        row.from_domain,
        row.stream,
        [] if row.tags is None else _TAGS.decode(row.tags),
        detail_of(row.payload),
    )


def _statuses(counts: Mapping[UUID, int], steps: Iterable[StepRow]) -> dict[int, Status]:
    """Return the status of the message after each step, by seq."""
    folds: dict[UUID, _StatusFold] = {}
    known = {}
    for step in steps:
        fold = folds.get(step.message_id)
        if fold is None:
            fold = folds[step.message_id] = _StatusFold(counts.get(step.message_id, 1))
        known[step.seq] = fold.take(step)
    return known


class _StatusFold:
    """The status of one message while its events are read in order."""

    def __init__(self, recipients: int) -> None:
        self._recipients = recipients
        self._settled: dict[str, Status] = {}
        self._status = Status.QUEUED

    def take(self, step: StepRow) -> Status:
        """Return the message's status after the event."""
        after = STATUS_AFTER.get(step.type)
        if after is not None:
            self._status = self._settle(step, after) if after in SETTLED else after
        return self._status

    def _settle(self, step: StepRow, after: Status) -> Status:
        detail = _step_of(step.payload)
        if detail.recipient is None or detail.phase == "scheduled_release":
            return after  # concerns all recipients
        self._settled[detail.recipient] = after
        waiting = max(0, self._recipients - len(self._settled))
        return status_of_message([*self._settled.values(), *[Status.SENDING] * waiting])


def _step_of(payload: str | None) -> _Step:
    try:
        return _STEPS.decode(payload or "{}").detail
    except (msgspec.DecodeError, ValueError):
        return _Step()


def bound(made_at_ms: int) -> UUID:
    """Return an id below those of all events written after this time (Unix ms), with allowance for clock skew."""
    return ids.floor_of(made_at_ms - SKEW // timedelta(milliseconds=1))


def event_filters(names: Iterable[str]) -> EventFilters:
    """Return the filters for these types and, with a full stop at the end, beginnings of types."""
    prefixes = tuple(name for name in names if name.endswith("."))
    return EventFilters(frozenset(names).difference(prefixes), prefixes)


def checked_types(names: list[str]) -> list[str] | None:
    """Return the event types to filter by, None for all; drops names with NUL, which PostgreSQL rejects."""
    return [name for name in names if "\0" not in name] if names else None
