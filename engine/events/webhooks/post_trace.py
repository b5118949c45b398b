"""The trace of a post: the header by which the receiver continues it, and the span of each attempt."""

import random
from contextlib import suppress
from datetime import datetime
from typing import Self
from urllib.parse import urlsplit

from msgspec import Struct

from engine.base import clock, ids, trace_context
from engine.base.trace_context import Attributes
from engine.events.webhooks.types import Claimed
from engine.store.traces import TRACES

_ID_CHARACTERS = 30  # of a message, with its prefix
_MESSAGE = '"messageId":"'


class PostTrace(Struct, frozen=True):
    """The trace of one attempt to post an event of a message; `span` is 0 if it is not recorded."""

    traceparent: str
    span: int

    @classmethod
    def of(cls, payload: str | None) -> Self | None:
        """Return the trace of an event, None if its message has none."""
        traceparent = None if payload is None else trace_context.in_payload(payload)
        if traceparent is None:
            return None
        is_recorded = TRACES.sampling(traceparent) is not None
        return cls(traceparent, (random.getrandbits(64) or 1) if is_recorded else 0)

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers to add: the span as the parent of the receiver's, or the trace as it came."""
        if not self.span:
            return {trace_context.HEADER: self.traceparent}
        return {trace_context.HEADER: trace_context.continued(self.traceparent, self.span)}

    def ended(self, post: Claimed, began: datetime, *, status: int | None, delivered: bool) -> None:
        """Record the span of an attempt that began at `began` and has ended now."""
        tracer = TRACES.tracer
        if tracer is None or not self.span or post.payload is None or post.url is None:
            return
        at = post.payload.index(_MESSAGE) + len(_MESSAGE)
        message = ids.parse_id(ids.Kind.MESSAGE, post.payload[at : at + _ID_CHARACTERS])
        tracer.record(
            "webhook", message, self.traceparent, began, clock.now(), _attributes(post, status, delivered=delivered),
            calls=True, failed=None if delivered else "not delivered", span=self.span,
        )  # fmt: skip


def _attributes(post: Claimed, status: int | None, *, delivered: bool) -> Attributes:
    assert post.url is not None
    found: dict[str, str | int] = {
        "http.request.method": "POST",
        "server.address": _host(post.url),
        "waybill.webhook.id": ids.format_id(ids.Kind.WEBHOOK, post.webhook_id),
        "waybill.event.id": ids.format_id(ids.Kind.EVENT, post.event_id),
    }
    if post.attempts:
        found["http.request.resend_count"] = post.attempts
    if status is not None:
        found["http.response.status_code"] = status
    if not delivered:
        found["error.type"] = "no_response" if status is None else str(status)
    return found


def _host(url: str) -> str:
    with suppress(ValueError):  # of an old endpoint, whose post fails for that reason
        return urlsplit(url).hostname or ""
    return ""
