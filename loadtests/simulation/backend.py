"""A session of the real PostgreSQL, spoken to synchronously: the run waits for each reply, so real time orders nothing.

Sessions outlive runs: a child process inherits those of its parent, whose caches are warm.
"""

import select
import socket
import struct
from collections.abc import Callable
from typing import Final

_QUIET_MS: Final = 5  # without an answer, after which a statement may be waiting for a lock
_ENDS: Final = frozenset(b"ZG")  # ReadyForQuery, CopyInResponse: the server waits for the client
_TIMEOUTS: Final = {"statement_timeout", "idle_in_transaction_session_timeout"}
_DESCRIBED: Final = frozenset(b"TnE")  # row description, none, error
_NOW: Final = b"Q"


class ServerGone(RuntimeError):  # noqa: N818 - named for what happened
    """PostgreSQL itself ended a session, which no fault of the simulation does."""


class Backend:
    """A session of the real PostgreSQL, over its wire protocol; later runs use it again."""

    def __init__(self, path: str, startup: bytes, *, monitor: "Monitor | None") -> None:
        self.key = startup
        self.pid = 0
        self.may_wait: Callable[[], bool] = lambda: False  # whether another session of the run may hold locks
        self.status = "I"  # idle, in a transaction, in a failed one
        self._monitor = monitor
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._received = b""
        self._ends: list[int] = []
        self._wanted = 0
        self._flush = False
        greeting = self.exchange(startup, 1)
        assert greeting is not None
        self.greeting = greeting
        self.pid = _pid_of(greeting)

    def exchange(self, request: bytes, replies: int, *, flush: bool = False) -> bytes | None:
        """Send requests; return the last reply, or None if it waits for a lock: then call `proceed` later.

        `flush`: the last request describes a statement and ends with Flush.
        """
        self._socket.sendall(request)
        self._flush = flush
        self._received, self._ends, self._wanted = b"", [], replies
        return self.proceed()

    def proceed(self, *, cancelled: bool = False) -> bytes | None:
        """Return the last reply, or None while it waits for a lock, unless it was `cancelled`."""
        at = self._ends[-1] if self._ends else 0
        while True:
            at = self._parse(at)
            if len(self._ends) == self._wanted:
                first = self._ends[-2] if self._wanted > 1 else 0
                return self._received[first:]
            if not self._poll.poll(_QUIET_MS):
                if not cancelled and self._is_blocked():
                    return None
                continue
            octets = self._socket.recv(262_144)
            if not octets:
                raise ServerGone(self._received[-300:])
            self._received += octets

    def _is_blocked(self) -> bool:
        """Return True if it waits for a lock; without an open transaction elsewhere nobody needs to be asked."""
        return self._monitor is not None and self.may_wait() and self._monitor.is_blocked(self.pid)

    def simple(self, sql: str) -> list[list[str | None]]:
        """Run statements; return the rows of all, as text. Raises RuntimeError for an error."""
        reply = self.exchange(query(sql), 1)
        if reply is None:
            raise RuntimeError(f"waits for a lock: {sql[:80]}")
        return rows_of(reply)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _parse(self, at: int) -> int:
        """Note the ends of replies from `at` on; return where the next message begins."""
        received = self._received
        while at + 5 <= len(received):
            end = at + 1 + int.from_bytes(received[at + 1 : at + 5], "big")
            if end > len(received):
                break
            last = self._flush and len(self._ends) == self._wanted - 1
            if received[at] in _ENDS or (last and received[at] in _DESCRIBED):
                self._ends.append(end)
                if received[at] == 0x5A:
                    self.status = chr(received[at + 5])
            at = end
        return at


class Monitor:
    """A session that looks at the others and at committed rows; the run itself never sees it."""

    def __init__(self, path: str, startup: bytes) -> None:
        self._backend = Backend(path, startup, monitor=None)

    def is_blocked(self, pid: int) -> bool:
        """Return True if a session waits for a lock of another one."""
        return bool(self.rows(f"SELECT 1 WHERE cardinality(pg_blocking_pids({pid})) > 0"))

    def cancel(self, pid: int) -> None:
        """Cancel the statement of a session."""
        self.rows(f"SELECT pg_cancel_backend({pid})")

    def rows(self, sql: str) -> list[list[str | None]]:
        """Return the rows of a query."""
        return self._backend.simple(sql)

    def close(self) -> None:
        """Close the session."""
        self._backend.close()


def query(sql: str) -> bytes:
    """Return the message of a simple query."""
    text = sql.encode() + b"\0"
    return _NOW + struct.pack("!i", len(text) + 4) + text


def startup_of(user: str, database: str, **settings: str) -> bytes:
    """Return a startup message."""
    pairs = {"user": user, "database": database, **settings}
    body = b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in pairs.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, 196_608) + body


def of_simulation(startup: bytes) -> bytes:
    """Return a startup message without its application name, which tells nothing here, and without limits of real
    time; lock_timeout stays, because the service checks it.
    """
    words = startup[8:].split(b"\0")
    pairs = {words[at].decode(): words[at + 1].decode() for at in range(0, len(words) - 2, 2)}
    pairs.pop("application_name", None)
    pairs |= dict.fromkeys(pairs.keys() & _TIMEOUTS, "0")
    return startup_of(**dict(sorted(pairs.items())))


def rows_of(reply: bytes) -> list[list[str | None]]:
    """Return the data rows of a reply as text. Raises RuntimeError if it holds an error."""
    found: list[list[str | None]] = []
    for kind, body in messages(reply):
        if kind == b"E":
            raise RuntimeError(error_text(body))
        if kind != b"D":
            continue
        at, row = 2, []
        for _ in range(int.from_bytes(body[:2], "big")):
            size = int.from_bytes(body[at : at + 4], "big", signed=True)
            at += 4
            row.append(None if size < 0 else body[at : at + size].decode())
            at += max(size, 0)
        found.append(row)
    return found


def messages(octets: bytes) -> list[tuple[bytes, bytes]]:
    """Split octets into the messages of the protocol: type and body."""
    found, at = [], 0
    while at + 5 <= len(octets):
        end = at + 1 + int.from_bytes(octets[at + 1 : at + 5], "big")
        found.append((octets[at : at + 1], octets[at + 5 : end]))
        at = end
    return found


def error_text(body: bytes) -> str:
    """Return code and text of an error message."""
    fields = {field[:1]: field[1:].decode("utf-8", "replace") for field in body.split(b"\0") if field}
    return f"{fields.get(b'C', '')} {fields.get(b'M', '')}"


def _pid_of(greeting: bytes) -> int:
    for kind, body in messages(greeting):
        if kind == b"E":
            raise RuntimeError(error_text(body))
        if kind == b"K":
            return int.from_bytes(body[:4], "big")
    raise RuntimeError("PostgreSQL sent no key data")
