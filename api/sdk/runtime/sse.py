"""Parse Server-Sent Events from octets (WHATWG HTML, section 9.2). Pure."""

from typing import Final, NamedTuple

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024


class ServerSentEvent(NamedTuple):
    """One event: its name, id (None if it has none) and data."""

    name: str
    id: str | None
    data: str


class EventParser:
    """The unfinished event of one stream. Only LF and CRLF end a line: JSON may hold U+2028 and its like."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0
        self._name = ""
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that `chunk` completes. Raises ValueError for an event beyond MAX_EVENT_BYTES."""
        if b"\n" not in chunk:
            self._keep(chunk)
            return []
        first, *lines = chunk.split(b"\n")
        lines.insert(0, b"".join([*self._rest, first]))
        self._rest, self._size = [], 0
        self._keep(lines.pop())
        return [event for line in lines if (event := self._line(line.removesuffix(b"\r"))) is not None]

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_EVENT_BYTES:
            raise ValueError("an event of the stream is too large")
        self._rest.append(part)

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._finished()
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self._id = value
        return None

    def _finished(self) -> ServerSentEvent | None:
        name, data, known = self._name or "message", self._data, self._id
        self._name, self._data, self._id = "", [], None
        return ServerSentEvent(name, known, "\n".join(data)) if data else None


class LineParser:
    """The unfinished line of a stream of JSON lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without empty ones."""
        if b"\n" not in chunk:
            self._rest.append(chunk)
            return []
        first, *lines = chunk.split(b"\n")
        lines.insert(0, b"".join([*self._rest, first]))
        self._rest = [lines.pop()]
        return [line for line in lines if line.strip()]

    def rest(self) -> list[bytes]:
        """Return the last line, if the stream ended without a line break behind it."""
        last = b"".join(self._rest)
        return [last] if last.strip() else []
