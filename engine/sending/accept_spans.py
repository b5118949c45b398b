"""Record the span in which each message was accepted. Called after the commit, where traces are on."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from engine.base import ids
from engine.base.trace_context import SYSTEM
from engine.sending.emails.types import Prepared
from engine.store import exemplars

if TYPE_CHECKING:
    from engine.store.trace_export import OtlpTracer


def accepted(tracer: "OtlpTracer", stored: Iterable[Prepared], ended: datetime, seconds: float) -> None:
    """Record the messages of a commit that took `seconds`; they name neither addresses nor subjects."""
    for message in stored:
        if message.traceparent is None or not tracer.samples(message.traceparent):
            continue
        given: dict[str, str | int] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "accept",
            "messaging.message.id": message.public_id,
            "messaging.message.body.size": len(message.mime),
            "waybill.account.id": ids.format_id(ids.Kind.ACCOUNT, message.account_id),
            "waybill.source": message.source,
            "waybill.recipients": len(message.recipients),
        }
        if message.copy is not None:
            given["waybill.broadcast.id"] = ids.format_id(ids.Kind.BROADCAST, message.copy.broadcast_id)
        tracer.accepted(message.id, message.traceparent, message.created_at, ended, given)
        exemplars.FLUSHES.offer("accept", seconds, message.traceparent)
