"""Make spans by OpenTelemetry and export them by OTLP over HTTP, from a thread of the SDK.

Imported for traces alone (`engine.store.traces`). The standard variables `OTEL_…` say where to, how many and as what.
The queue is bounded: spans that the collector does not take in time are dropped and counted.
"""

import os
import random
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_QUEUE_SIZE
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from engine.base import clock, trace_context
from engine.base.trace_context import SYSTEM, Attributes
from engine.base.version import version
from engine.store import metrics

CLOSE_S: Final = 2.0
MAX_QUEUE: Final = 2_048  # spans, unless OTEL_BSP_MAX_QUEUE_SIZE says otherwise: the default of the specification
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NOTHING: Final = Context()
_FINE: Final = Status()

_log = structlog.get_logger("traces")


class OneResource(Resource):
    """The resource of all spans of a process. The encoder groups spans by it: comparing its contents would cost a
    quarter of the time of each span.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Return True for the same object."""
        return self is other


class CountedExport(SpanExporter):
    """Exports spans and counts the results. Called from the thread of the processor alone."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.done = 0  # spans, exported or not

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; the exporter tries again while the collector is away or busy, within its timeout."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self.done += len(spans)
            outcome = "exported" if result is SpanExportResult.SUCCESS else "failed"
            metrics.TRACE_SPANS.labels(outcome).inc(len(spans))
        return result

    def shutdown(self) -> None:
        """End a try that is under way."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is kept here."""
        return self._exporter.force_flush(timeout_millis)


class OtlpTracer:
    """Records the spans of one process, which was forked before; never blocks and never fails."""

    def __init__(self, process: str) -> None:
        self._resource = _resource(process)
        self._sampler = TracerProvider(resource=self._resource, shutdown_on_exit=False).sampler
        self._scope = InstrumentationScope(SYSTEM, version())
        self._export = CountedExport(OTLPSpanExporter())
        self._most = int(os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE) or MAX_QUEUE)
        self._processor = BatchSpanProcessor(self._export, max_queue_size=self._most)
        self._handed = 0

    def begin(self, message: UUID) -> str | None:
        """Return the `traceparent` of a message whose send gave none, None if it is not sampled."""
        trace = random.getrandbits(128) or 1
        if self._sampler.should_sample(_NOTHING, trace, "accept").decision is not Decision.RECORD_AND_SAMPLE:
            return None
        return trace_context.written(trace, trace_context.span_of(message))

    def samples(self, traceparent: str | None) -> bool:
        """Return True if the spans of this message are recorded: the same in every process."""
        if traceparent is None:
            return False
        parent = _remote(traceparent)
        context = set_span_in_context(NonRecordingSpan(parent), _NOTHING)
        return self._sampler.should_sample(context, parent.trace_id, "accept").decision is Decision.RECORD_AND_SAMPLE

    def accepted(self, message: UUID, traceparent: str, began: datetime, ended: datetime, given: Attributes) -> None:
        """Record the span in which a message was accepted, which all its other spans belong to."""
        span = trace_context.span_of(message)
        parent: SpanContext | None = _remote(traceparent)
        if parent is not None and parent.span_id == span:
            parent = None  # the trace began here
        context = SpanContext(int(trace_context.trace_of(traceparent), 16), span, is_remote=False, trace_flags=_SAMPLED)
        self._add("accept", context, parent, began, ended, given, SpanKind.SERVER, _FINE)

    def record(
        self,
        name: str,
        message: UUID,
        traceparent: str,
        began: datetime,
        ended: datetime,
        given: Attributes | None = None,
        *,
        calls: bool = False,
        failed: str | None = None,
        span: int = 0,
    ) -> None:
        """Record another span of a message. `calls`: to another server; `failed`: why it did not succeed; `span` is its
        id, if others know it.
        """
        trace = int(trace_context.trace_of(traceparent), 16)
        context = SpanContext(trace, span or random.getrandbits(64) or 1, is_remote=False, trace_flags=_SAMPLED)
        parent = SpanContext(trace, trace_context.span_of(message), is_remote=True, trace_flags=_SAMPLED)
        kind = SpanKind.CLIENT if calls else SpanKind.INTERNAL
        status = _FINE if failed is None else Status(StatusCode.ERROR, failed)
        self._add(name, context, parent, began, ended, given, kind, status)

    def close(self) -> None:
        """Export what is left, for 2 s at most: the SDK itself would wait for 30 s."""
        ending = threading.Thread(target=self._processor.shutdown, name="traces end", daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    def _add(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        began: datetime,
        ended: datetime,
        given: Attributes | None,
        kind: SpanKind,
        status: Status,
    ) -> None:
        if self._handed - self._export.done >= self._most:
            metrics.TALLY.add(metrics.TRACE_SPANS, "dropped")
            return
        try:
            self._processor.on_end(
                ReadableSpan(
                    name,
                    context=context,
                    parent=parent,
                    resource=self._resource,
                    attributes=given,
                    kind=kind,
                    status=status,
                    start_time=_nanoseconds(began),
                    end_time=_nanoseconds(max(began, ended)),
                    instrumentation_scope=self._scope,
                )
            )
        except Exception as error:  # noqa: BLE001 - what a message needs is committed: no fault here may undo it
            _log.error("span not recorded", name=name, error=repr(error))
            metrics.TALLY.add(metrics.TRACE_SPANS, "dropped")
        else:
            self._handed += 1


def _remote(traceparent: str) -> SpanContext:
    return SpanContext(
        int(trace_context.trace_of(traceparent), 16),
        int(trace_context.parent_of(traceparent), 16),
        is_remote=True,
        trace_flags=TraceFlags(trace_context.flags_of(traceparent)),
    )


def _nanoseconds(at: datetime) -> int:
    return clock.microseconds(clock.machine_time(at)) * 1_000


def _resource(process: str) -> OneResource:
    """Return the description of this process, with what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add."""
    made = Resource.create({"service.version": version(), "service.instance.id": f"{process}-{os.getpid()}"})
    if str(made.attributes.get("service.name", "")).startswith("unknown_service"):  # the environment names none
        made = made.merge(Resource({"service.name": SYSTEM}))
    return OneResource(made.attributes, made.schema_url)
