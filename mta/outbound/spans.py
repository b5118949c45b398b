"""Record the spans of a delivery once its outcome is committed: queue, route, attempt, settle. Called for sampled
messages alone.

All times are known by then, so that nothing is kept open while a delivery waits; they are those of
`engine.delivery.waits`.
"""

from datetime import datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from engine.base import clock, ids
from engine.base.trace_context import SYSTEM, Attributes
from engine.delivery.outcome import Verdict
from engine.delivery.waits import WaitCause, past_of
from engine.sending.settle import DeliveryAttempt
from mta.outbound.delivery import ActiveDelivery

if TYPE_CHECKING:
    from engine.store.trace_export import OtlpTracer

# Causes that no span shows by its own length.
_SHOWN: Final = (WaitCause.SITE_LIMITS, WaitCause.OTHER_ACCOUNTS, WaitCause.OWN_MAIL)


class DeliveryMoments(Struct, frozen=True):
    """The moments of one delivery up to its outcome, each at or after the one before."""

    due: datetime
    taken: datetime
    routed: datetime
    began: datetime
    ended: datetime

    @classmethod
    def in_order(cls, *moments: datetime) -> Self:
        """Return moments that two clocks told, and which may overlap by milliseconds, none after the last."""
        return cls(*[min(one, moments[-1]) for one in accumulate(moments, max)])


def times_of(delivery: ActiveDelivery, attempt: DeliveryAttempt) -> DeliveryMoments:
    """Return the moments of a delivery whose attempt has just ended."""
    taken_s, lined_up_s = delivery.wait.ages(clock.monotonic())
    ended = attempt.ended_at
    taken = ended - timedelta(seconds=taken_s)
    routed = attempt.started_at if lined_up_s is None else ended - timedelta(seconds=lined_up_s)
    return DeliveryMoments.in_order(_due(attempt), taken, routed, attempt.started_at, ended)


def settled(tracer: "OtlpTracer", attempt: DeliveryAttempt, times: DeliveryMoments, committed: datetime) -> None:
    """Record the spans of a delivery whose outcome was committed."""
    message, traceparent = attempt.row.message_id, attempt.row.traceparent
    assert traceparent is not None
    tracer.record("queue", message, traceparent, times.due, times.taken)
    tracer.record("route", message, traceparent, times.taken, times.routed)
    tracer.record(
        "attempt", message, traceparent, times.began, times.ended, _attributes(attempt),
        calls=attempt.conversation is not None, failed=_failure(attempt),
    )  # fmt: skip
    tracer.record("settle", message, traceparent, times.ended, committed)


def _due(attempt: DeliveryAttempt) -> datetime:
    """Return since when the row waited for this attempt: its acceptance or release, or the outcome before."""
    past = past_of(attempt.row)
    waited_ms = sum(ms for cause, ms in past.ms.items() if cause is not WaitCause.SCHEDULE)
    return clock.at_milliseconds(past.since - waited_ms)


def _attributes(attempt: DeliveryAttempt) -> Attributes:
    row, talk = attempt.row, attempt.conversation or {}
    found: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "deliver",
        "messaging.message.id": ids.format_id(ids.Kind.MESSAGE, row.message_id),
        "waybill.attempt": row.attempts + 1,
        "waybill.recipients": len(attempt.results),
    }
    if isinstance(mx := talk.get("mx"), str):
        found["server.address"] = mx
    tls = talk.get("tls")
    if isinstance(tls, dict) and "version" in tls:
        found["tls.protocol.version"] = str(tls["version"]).removeprefix("TLSv")
    outcomes = [one.outcome for one in attempt.results if one.outcome is not None]
    worst = next((one for one in outcomes if one.verdict is not Verdict.DELIVERED), outcomes[-1] if outcomes else None)
    if worst is not None:
        found["waybill.outcome"] = worst.verdict.value
        if worst.smtp_code is not None:
            found["waybill.smtp.code"] = worst.smtp_code
        if worst.verdict is not Verdict.DELIVERED:
            found["error.type"] = worst.category.value
    for cause in _SHOWN:
        if ms := (attempt.waits or {}).get(cause, 0):
            found[f"waybill.wait.{cause}_ms"] = ms
    return found


def _failure(attempt: DeliveryAttempt) -> str | None:
    """Return the status of the span; the words of the server may name the recipient, so they are left out."""
    for one in attempt.results:
        if one.outcome is None:
            return "suppressed"
        if one.outcome.verdict is not Verdict.DELIVERED:
            return one.outcome.verdict.value
    return None
