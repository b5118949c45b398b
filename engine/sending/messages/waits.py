"""Read the waiting times of a message off its waybill: one division into causes per attempt. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from engine.base.events import EventType
from engine.delivery.waits import WaitCause


class WaitingEvent(Struct, frozen=True):
    """An event of a waybill, with its detail."""

    id: UUID
    type: str
    occurred_at: datetime
    detail: Mapping[str, Any]


class AttemptWait(Struct, frozen=True):
    """The time from the outcome before, or from the creation of the message, to the outcome of an attempt.

    `event` is the `attempted` event, or the outcome itself where no connection was tried. `domain`: of the recipients
    that it is about; None for all.
    """

    event: UUID
    domain: str | None
    since: datetime
    until: datetime
    ms: Mapping[WaitCause, int]
    fair_share: float


def attempt_waits(waybill: Sequence[WaitingEvent]) -> list[AttemptWait]:
    """Return the waiting times of a waybill in its order, in which an outcome follows its `attempted` event."""
    found: list[AttemptWait] = []
    for place, event in enumerate(waybill):
        ms = waits_in(event.detail)
        if ms is None:
            continue
        is_attempt = event.type == EventType.ATTEMPTED and place + 1 < len(waybill)
        until = (waybill[place + 1] if is_attempt else event).occurred_at
        domain = event.detail.get("to_domain") if event.type == EventType.ATTEMPTED else _domain(event.detail)
        fair_share = event.detail.get("fair_share", 1.0)
        one = AttemptWait(event.id, domain, until - timedelta(milliseconds=sum(ms.values())), until, ms, fair_share)
        if not found or not _same(found[-1], one):  # the outcomes of one row without a connection repeat it
            found.append(one)
    return found


def waits_in(detail: Mapping[str, Any]) -> dict[WaitCause, int] | None:
    """Return the milliseconds by cause in the detail of an event, or None if it has none; skip causes of other
    versions."""
    waits = detail.get("waits")
    if not isinstance(waits, dict):
        return None
    return {cause: int(waits[cause.value]) for cause in WaitCause if cause.value in waits}


def _domain(detail: Mapping[str, Any]) -> str | None:
    domain = str(detail.get("recipient", "")).rpartition("@")[2].lower()
    return domain or None


def _same(one: AttemptWait, other: AttemptWait) -> bool:
    return (one.domain, one.until, one.ms) == (other.domain, other.until, other.ms)
