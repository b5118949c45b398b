"""A receiver of OTLP over HTTP on the messages of `opentelemetry-proto`, as a collector is: good, slow or refusing."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

PATH = "/v1/traces"


class SeenSpan(Struct, frozen=True):
    """A span as received: ids in hex, "" for no parent; times in nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    kind: str
    began: int
    ended: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """Keeps the spans of all requests. `status` is its answer; it waits for `released` before each, set by default."""

    def __init__(self) -> None:
        self.status = 200
        self.requests = 0
        self.released = threading.Event()
        self.released.set()
        self._spans: list[SeenSpan] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Return the value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[SeenSpan]:
        """Return all spans so far, in the order of their beginning."""
        with self._lock:
            return sorted(self._spans, key=lambda one: one.began)

    def of(self, trace: str) -> list[SeenSpan]:
        """Return the spans of one trace."""
        return [one for one in self.spans if one.trace == trace]

    def take(self, content: bytes) -> int:
        """Keep the spans of a request; return the status of the answer."""
        request = ExportTraceServiceRequest.FromString(content)
        self.requests += 1
        self.released.wait()
        if self.status == 200:
            with self._lock:
                self._spans += _spans_of(request)
        return self.status

    def serve(self) -> None:
        """Serve until `close`."""
        self._server.serve_forever(0.05)

    def close(self) -> None:
        """End the server and every request that waits."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of loopback, in a thread."""
    collector = Collector()
    thread = threading.Thread(target=collector.serve, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.close()
        thread.join()


def _handler_of(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == PATH, self.path
            assert self.headers["Content-Type"] == "application/x-protobuf"
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            status = collector.take(content)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[SeenSpan]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SeenSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == Status.STATUS_CODE_ERROR,
                    _plain(span.attributes),
                    _plain(resource.resource.attributes),
                )


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one) for one in attributes}


def _value(one: KeyValue) -> Any:
    kind = one.value.WhichOneof("value")
    return None if kind is None else getattr(one.value, kind)
