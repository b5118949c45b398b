"""The status a message has after each of its events, told from the log alone; how a sealed text is read. Pure.

A tail filters by status. Were that the status at the moment of reading, a reader that comes back would be shown
other events than one that stayed: what the log says is the same for both.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from engine.areas.tails.types import Event, StepRow, TailRow
from engine.base import ids
from engine.base.events import SETTLED, EventType, Status, status_of_message

SKEW: Final = timedelta(days=1)  # how far the clocks of hosts that write one log may differ
_NO_DETAIL: Final = Raw(b"{}")
_TYPES: Final = frozenset(EventType)
_TAGS = msgspec.json.Decoder(list[str])

# The message's status after an event of it, where it has one recipient; `queued` leaves it as it was.
_AFTER: Final[Mapping[str, Status]] = {
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
    """A sealed text, its detail unread."""

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
    """The detail of a sealed text as it stands there; an empty object where somebody has broken the text."""
    try:
        return _PAYLOAD.decode(payload).detail
    except (msgspec.DecodeError, ValueError):
        return _NO_DETAIL


def is_of_message(kind: str) -> bool:
    """True for the thirteen types of the waybill; the others are events of the account."""
    return kind in _TYPES


def with_history(rows: Iterable[TailRow]) -> list[UUID]:
    """Messages whose status after these events hangs on what came before."""
    return list({
        row.message_id
        for row in rows
        if row.message_id is not None and ((row.recipient_count or 1) > 1 or row.type == EventType.QUEUED)
    })  # fmt: skip


def events(rows: Iterable[TailRow], steps: Iterable[StepRow]) -> Iterator[Event | None]:
    """The rows as events, None for those of the account. `steps` are the ways of the messages `with_history` named."""
    row_list = list(rows)
    counts = {row.message_id: row.recipient_count or 1 for row in row_list if row.message_id is not None}
    known = _statuses(counts, steps)
    for row in row_list:
        if not is_of_message(row.type):
            yield None
            continue
        status = None
        if row.message_id is not None:
            status = known.get(row.seq) or _AFTER.get(row.type)
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
        row.stream,
        [] if row.tags is None else _TAGS.decode(row.tags),
        detail_of(row.payload),
    )


def _statuses(counts: Mapping[UUID, int], steps: Iterable[StepRow]) -> dict[int, Status]:
    """The status of its message after each step, by place."""
    ways: dict[UUID, _Way] = {}
    known = {}
    for step in steps:
        way = ways.get(step.message_id)
        if way is None:
            way = ways[step.message_id] = _Way(counts.get(step.message_id, 1))
        known[step.seq] = way.take(step)
    return known


class _Way:
    """One message on its way."""

    def __init__(self, recipients: int) -> None:
        self._recipients = recipients
        self._settled: dict[str, Status] = {}
        self._status = Status.QUEUED

    def take(self, step: StepRow) -> Status:
        """The message's status after the step."""
        after = _AFTER.get(step.type)
        if after is not None:
            self._status = self._settle(step, after) if after in SETTLED else after
        return self._status

    def _settle(self, step: StepRow, after: Status) -> Status:
        detail = _step_of(step.payload)
        if detail.recipient is None or detail.phase == "scheduled_release":
            return after  # about the message as a whole
        self._settled[detail.recipient] = after
        waiting = max(0, self._recipients - len(self._settled))
        return status_of_message([*self._settled.values(), *[Status.SENDING] * waiting])


def _step_of(payload: str | None) -> _Step:
    try:
        return _STEPS.decode(payload or "{}").detail
    except (msgspec.DecodeError, ValueError):
        return _Step()


def bound(made_at_ms: int) -> UUID:
    """An id that no event can have which was sealed after one of that moment."""
    return ids.floor_of(made_at_ms - SKEW // timedelta(milliseconds=1))


def checked_types(names: list[str]) -> list[str] | None:
    """Types to pull, None for all: any text will do, but Postgres takes no NUL."""
    return [name for name in names if "\0" not in name] if names else None
