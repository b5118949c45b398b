"""Spans on their way to a collector that answers, refuses, is slow or is not there; and none without traces."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from engine.base import clock, ids, trace_context
from engine.base.settings import Settings
from engine.events.webhooks.post_trace import PostTrace
from engine.events.webhooks.types import Claimed
from engine.store import metrics
from engine.store.trace_export import OtlpTracer
from engine.store.traces import TRACES, Traces
from ops.host.process_specs import ROOT
from tests.harness.collector import Collector, collecting
from tests.harness.patience import PATIENCE_S

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = GIVEN[:-1] + "0"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield made


def record(tracer: OtlpTracer, times: int = 1, traceparent: str = GIVEN) -> None:
    now = clock.now()
    for _ in range(times):
        tracer.record("attempt", ids.uuid7(), traceparent, now, now + timedelta(milliseconds=5))


def counted(end: str) -> float:
    metrics.TALLY.write()
    return float(metrics.TRACE_SPANS.labels(end)._value.get())


def test_spans_of_a_message_hang_together(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    tracer, message, at = OtlpTracer("mta-1"), ids.uuid7(), clock.now()
    later = at + timedelta(milliseconds=20)
    tracer.accepted(message, GIVEN, at, later, {"messaging.system": "waybill"})
    tracer.record("attempt", message, GIVEN, later, later, {"waybill.attempt": 1}, calls=True, failed="deferred")
    tracer.close()

    accept, attempt = collector.spans
    assert {accept.trace, attempt.trace} == {trace_context.trace_of(GIVEN)}
    assert accept.parent == trace_context.parent_of(GIVEN)
    assert attempt.parent == accept.id == f"{trace_context.span_of(message):016x}"
    assert (accept.name, accept.kind, accept.failed) == ("accept", "server", False)
    assert (attempt.name, attempt.kind, attempt.failed) == ("attempt", "client", True)
    assert accept.attributes == {"messaging.system": "waybill"}
    assert accept.ended - accept.began == 20_000_000
    assert accept.resource["service.name"] == "waybill"
    assert accept.resource["service.instance.id"].startswith("mta-1-")
    assert accept.resource["deployment.environment.name"] == "test"


def test_a_trace_that_begins_here_has_no_parent(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mail")
    tracer, message, at = OtlpTracer("api"), ids.uuid7(), clock.now()
    begun = tracer.begin(message)
    assert begun is not None
    assert trace_context.read(begun) == begun
    tracer.accepted(message, begun, at, at, {})
    tracer.close()

    [span] = collector.spans
    assert (span.parent, span.trace) == ("", trace_context.trace_of(begun))
    assert span.resource["service.name"] == "mail"


def test_a_post_to_a_broken_address_has_a_span(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer, message, at = OtlpTracer("worker"), ids.format_id(ids.Kind.MESSAGE, ids.uuid7()), clock.now()
    monkeypatch.setattr(TRACES, "tracer", tracer)
    payload = f'{{"type":"delivered","messageId":"{message}","detail":{{"traceparent":"{GIVEN}"}}}}'
    post = Claimed(
        ids.uuid7(), ids.uuid7(), ids.uuid7(), 1, 0, 0, at, payload, "https://[broken/", None, None, None, None, None
    )
    traced = PostTrace.of(payload)
    assert traced is not None
    traced.ended(post, at, status=None, delivered=False)
    tracer.close()

    [span] = collector.spans
    assert (span.name, span.failed, span.attributes["server.address"]) == ("webhook", True, "")


@pytest.mark.parametrize(
    ("sampler", "argument", "begins", "given", "unsampled"),
    [
        ("parentbased_always_on", "", True, True, False),
        ("parentbased_traceidratio", "0", False, True, False),
        ("parentbased_traceidratio", "1", True, True, False),
        ("traceidratio", "0", False, False, False),
        ("always_on", "", True, True, True),
        ("always_off", "", False, False, False),
    ],
)
def test_the_standard_samplers_decide(
    monkeypatch: pytest.MonkeyPatch, collector: Collector, sampler: str, argument: str, *, begins: bool, given: bool,
    unsampled: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    tracer = OtlpTracer("api")

    begun = tracer.begin(ids.uuid7())

    assert (begun is not None) is begins
    assert begun is None or tracer.samples(begun)
    assert (tracer.samples(GIVEN), tracer.samples(UNSAMPLED), tracer.samples(None)) == (given, unsampled, False)
    tracer.close()


def test_a_ratio_is_decided_alike_in_every_process(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.1")
    one, other = OtlpTracer("api"), OtlpTracer("mta-1")
    begun = [made for _ in range(2_000) if (made := one.begin(ids.uuid7())) is not None]

    assert 100 < len(begun) < 320
    assert all(other.samples(made) for made in begun)
    one.close()
    other.close()


@pytest.mark.parametrize("status", [400, 404])
def test_spans_that_the_collector_refuses_are_counted(collector: Collector, status: int) -> None:
    collector.status = status
    before = counted("failed")
    tracer = OtlpTracer("mta-1")
    record(tracer, 3)
    tracer.close()

    assert counted("failed") == before + 3
    assert collector.requests == 1  # such an answer is not asked for again


def test_a_queue_that_is_full_drops_spans_and_counts_them(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    collector.released.clear()
    before = counted("dropped")
    tracer = OtlpTracer("mta-1")
    record(tracer, 25)

    assert counted("dropped") == before + 15
    collector.released.set()
    tracer.close()
    assert len(collector.spans) == 10


@pytest.mark.parametrize("is_there", [True, False])
def test_the_end_waits_for_no_collector(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    if is_there:
        collector.released.clear()  # it takes the connection, and never answers
    else:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(10 * PATIENCE_S))
    tracer = OtlpTracer("mta-1")
    record(tracer)
    closed = threading.Thread(target=tracer.close, daemon=True)
    closed.start()
    closed.join(PATIENCE_S)

    assert not closed.is_alive()


def is_on(settings: Settings) -> bool:
    """Return True if a process with these settings records a sampled message."""
    traces = Traces()
    with traces.during(settings, "api"):
        on = traces.sampling(GIVEN) is not None
        assert (traces.begin(ids.uuid7()) is not None) is on
    assert traces.tracer is None
    return on


def test_traces_are_off_unless_asked_for(
    settings: Settings, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = msgspec.structs.replace(settings, traces=True)
    assert not is_on(settings)
    assert is_on(asked)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not is_on(asked)


def test_a_wrong_variable_leaves_the_service_without_traces(
    settings: Settings, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    assert not is_on(msgspec.structs.replace(settings, traces=True))


PROGRAM = """
import sys
import api.app, mta.process, mta.submission.process, ops.processes.worker
from engine.base.settings import Settings
from engine.events.webhooks.post_trace import PostTrace
from engine.events.webhooks.types import Claimed
from engine.store.traces import TRACES
TRACES.start(Settings(), "api")
# redis-py imports the metrics of OpenTelemetry wherever it is installed.
ours = ("opentelemetry.exporter", "opentelemetry.proto", "opentelemetry.sdk.trace", "google.protobuf", "requests")
print([name for name in sys.modules if name.startswith(ours)])
"""


def test_without_traces_nothing_of_opentelemetry_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == "[]\n", done.stderr
