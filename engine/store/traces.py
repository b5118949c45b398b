"""Record the spans of messages, if the operator wants traces (`WAYBILL_TRACES`).

`TRACES.tracer` is None without them: OpenTelemetry is not imported then, and a message costs one comparison for each
place that could record a span. Spans are made after the fact, from times that are known anyway, so that nothing is open
while a message waits, and only for messages whose trace is sampled.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

import structlog

from engine.base.settings import Settings

if TYPE_CHECKING:
    from engine.store.trace_export import OtlpTracer

_log = structlog.get_logger("traces")


class Traces:
    """The tracer of this process, None without traces; lives as long as the process."""

    def __init__(self) -> None:
        self.tracer: OtlpTracer | None = None

    def start(self, settings: Settings, process: str) -> None:
        """Record spans from now on, if the settings say so. A missing package does not stop mail: it is logged."""
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if not settings.traces or disabled or self.tracer is not None:
            return
        try:
            from engine.store.trace_export import OtlpTracer  # noqa: PLC0415 - 0.2 s and 20 MB, for traces alone

            self.tracer = OtlpTracer(process)
        except ImportError as error:
            _log.error("no traces: install waybill[otel], or unset WAYBILL_TRACES", error=str(error))
        except ValueError as error:
            _log.error("no traces: a variable OTEL_… has a wrong value", error=str(error))

    def stop(self) -> None:
        """Export what is left, and record no more."""
        tracer, self.tracer = self.tracer, None
        if tracer is not None:
            tracer.close()

    @contextmanager
    def during(self, settings: Settings, process: str) -> Iterator[None]:
        """Record spans until the context ends, if the settings say so."""
        self.start(settings, process)
        try:
            yield
        finally:
            self.stop()

    def begin(self, message: UUID) -> str | None:
        """Return the `traceparent` of a message whose send gave none, None if it is not sampled."""
        return None if self.tracer is None else self.tracer.begin(message)

    def sampling(self, traceparent: str | None) -> "OtlpTracer | None":
        """Return the tracer if it records the spans of the message."""
        tracer = self.tracer
        return tracer if tracer is not None and tracer.samples(traceparent) else None


TRACES: Final = Traces()
