"""Write Server-Sent Events in their wire format (WHATWG HTML, section 9.2)."""

from typing import Final

CONTENT_TYPE: Final = "text/event-stream"
HEADERS: Final = (
    ("Cache-Control", "no-cache, no-transform"),
    ("X-Accel-Buffering", "no"),  # nginx, and proxies based on it, would buffer the stream
)


def event(name: str, data: bytes, *, seq: int | None = None, retry_ms: int | None = None) -> bytes:
    """Return one event. `data` is JSON; its line breaks, which can only be white space, become spaces."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    lines = b"" if retry_ms is None else b"retry: %d\n" % retry_ms
    if seq is not None:
        lines += b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (lines, name.encode(), data)
