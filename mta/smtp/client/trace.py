"""Trace SMTP conversations line by line for `ops trace`: masked, within limits, no I/O.

Without a traced domain `SmtpTrace.domains` is empty, and a connection only checks that once per message.
"""

import itertools
import re
import secrets
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from engine.base import clock
from engine.mail.address import BadAddress, domain_name
from engine.mail.replies import Break, Reply
from mta.smtp.client.envelope import Envelope
from mta.smtp.client.transcript import outcome_text

MAX_LINES_PER_CONNECTION: Final = 300  # traced lines
MAX_LINES_PER_SECOND: Final = 200  # of a process
MAX_PENDING_LINES: Final = 2_000
MAX_TEXT: Final = 300  # characters of a line
MAX_HOSTS: Final = 1_000

# Commands shown in full except for addresses; of any other command only the verb is shown.
_SHOWN_VERBS = frozenset({"EHLO", "HELO", "STARTTLS", "MAIL", "RCPT", "DATA", "RSET", "QUIT", "."})
_ADDRESS = re.compile(r"([^\s<>@,;:\"'()\[\]])[^\s<>@,;:\"'()\[\]]*@")


class SmtpTrace:
    """The trace lines of one process that are not fetched yet; call `drain` several times per second."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], datetime] = clock.now
    ) -> None:
        self.domains: dict[str, datetime] = {}  # traced recipient domains (A-labels) -> end of the trace
        self._hosts: dict[str, set[str]] = {}  # mail host -> traced domains that it serves
        self._monotonic = monotonic
        self._wall = wall
        self._lines: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._second = 0
        self._lines_this_second = 0
        self._prefix = secrets.token_hex(2)
        self._numbers = itertools.count(1)

    def set_domains(self, traced: dict[str, datetime]) -> None:
        """Replace the traced domains; domains whose trace has ended are dropped."""
        now = self._wall()
        self.domains = {domain: until for domain, until in traced.items() if until > now}
        if not self.domains:
            self._hosts.clear()

    def add_hosts(self, domain: str, hosts: tuple[str, ...]) -> None:
        """Add the mail hosts of a traced domain, so that the opening of connections to them is traced too."""
        name = _a_labels(domain)
        if name in self.domains and len(self._hosts) < MAX_HOSTS:
            for host in hosts:
                self._hosts.setdefault(host, set()).add(name)

    def connection_trace(self, host: str, ip: str) -> "ConnectionTrace":
        """Return the trace of one connection."""
        return ConnectionTrace(self, f"{self._prefix}-{next(self._numbers):x}", host, ip)

    def domains_of_host(self, host: str) -> list[str]:
        """Return the traced domains that a mail host serves."""
        return [domain for domain in sorted(self._hosts.get(host, ())) if domain in self.domains]

    def drain(self) -> tuple[list[dict[str, Any]], int]:
        """Return the lines since the last call, oldest first, and the number of lines dropped by the limits."""
        lines, self._lines = list(self._lines), deque()
        left_out, self._left_out = self._left_out, 0
        return lines, left_out

    def add_line(self, line: dict[str, Any]) -> None:
        """Add a line, or count it as dropped if the process exceeds its limits."""
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._lines_this_second = second, 0
        if self._lines_this_second >= MAX_LINES_PER_SECOND or len(self._lines) >= MAX_PENDING_LINES:
            self._left_out += 1
            return
        self._lines_this_second += 1
        self._lines.append({"at": clock.iso(self._wall()), **line})


class ConnectionTrace:
    """The trace of one connection. Lines without `envelope` belong to the opening or the end of the session."""

    __slots__ = ("_count", "_host", "_id", "_ip", "_trace")

    def __init__(self, trace: SmtpTrace, conversation: str, host: str, ip: str) -> None:
        self._trace = trace
        self._id = conversation
        self._host = host
        self._ip = ip
        self._count = 0

    def command(self, envelope: Envelope | None, line: str) -> None:
        """Trace a command that we send."""
        self._show(envelope, ">", shown_command(line.rstrip("\r\n")))

    def content(self, envelope: Envelope, octets: int) -> None:
        """Trace the size of the content, never the content."""
        self._show(envelope, ">", f"({octets:,} octets of content and the final dot)")

    def answer(self, envelope: Envelope | None, outcome: Reply | Break, seconds: float) -> None:
        """Trace a reply or a broken connection."""
        self._show(envelope, "<" if isinstance(outcome, Reply) else "*", outcome_text(outcome), seconds)

    def note(self, envelope: Envelope | None, text: str, seconds: float | None = None) -> None:
        """Trace an event of the connection, such as TLS or its loss."""
        self._show(envelope, "*", text, seconds)

    def _show(self, envelope: Envelope | None, direction: str, text: str, seconds: float | None = None) -> None:
        domains = self._trace.domains_of_host(self._host) if envelope is None else self._traced_domain(envelope)
        if not domains or self._count > MAX_LINES_PER_CONNECTION:
            return
        self._count += 1
        if self._count > MAX_LINES_PER_CONNECTION:
            direction, text, seconds = "*", "more of this conversation is not shown", None
        line: dict[str, Any] = {
            "conversation": self._id, "domains": domains, "mx": self._host, "ip": self._ip, "way": direction,
            "text": masked(text)[:MAX_TEXT],
        }  # fmt: skip
        if seconds is not None:
            line["ms"] = round(seconds * 1_000, 1)
        self._trace.add_line(line)

    def _traced_domain(self, envelope: Envelope) -> list[str]:
        name = _a_labels(envelope.recipients[0].rpartition("@")[2])
        return [name] if name in self._trace.domains else []


def _a_labels(domain: str) -> str:
    try:
        return domain_name(domain)
    except BadAddress:
        return domain.lower()


def masked(text: str) -> str:
    """Mask the addresses in `text`, keeping first letter and domain: `a***@b.test`."""
    return _ADDRESS.sub(r"\1***@", text)


def shown_command(line: str) -> str:
    """Return a command without secrets; a line without a verb, such as an AUTH response, becomes `***`."""
    verb, blank, _ = line.partition(" ")
    if verb.upper() in _SHOWN_VERBS:
        return line
    return f"{verb[:12].upper()} ***" if blank else "***"
