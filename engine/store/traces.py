"""Record the spans of messages, if the operator wants traces (`WAYBILL_TRACES`).

`TRACES.tracer` is None without them: OpenTelemetry is not imported then, and a message costs one comparison for each
place that could record a span. Spans are made after the fact, from times that are known anyway, so that nothing is open
while a message waits, and only for messages whose trace is sampled.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

import structlog

from engine.base.settings import Settings
from engine.base.trace_context import Attributes

_log = structlog.get_logger("traces")


class Tracer(Protocol):
    """Records spans of one process (engine.store.trace_export); never blocks and never fails."""

    def begin(self, message: UUID) -> str | None:
        """Return the `traceparent` of a message whose send gave none, None if it is not sampled."""
        ...

    def samples(self, traceparent: str | None) -> bool:
        """Return True if the spans of this message are recorded: the same in every process."""
        ...

    def accepted(self, message: UUID, traceparent: str, began: datetime, ended: datetime, given: Attributes) -> None:
        """Record the span in which a message was accepted, which all its other spans belong to."""
        ...

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
        ...

    def close(self) -> None:
        """Export what is left, for 2 s at most."""
        ...


class Traces:
    """The tracer of this process, None without traces; lives as long as the process."""

    def __init__(self) -> None:
        self.tracer: Tracer | None = None

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

    def sampling(self, traceparent: str | None) -> Tracer | None:
        """Return the tracer if it records the spans of the message."""
        tracer = self.tracer
        return tracer if tracer is not None and tracer.samples(traceparent) else None


TRACES: Final = Traces()
