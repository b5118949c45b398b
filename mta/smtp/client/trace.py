"""SMTP conversations line by line, for an operator who watches a domain: what is shown, masked and bounded. No I/O.

While nobody watches, `SmtpTrace.domains` is empty and a connection does nothing but look at that once a message.
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

MAX_LINES_EACH: Final = 300  # of one connection
MAX_A_SECOND: Final = 200  # of one process
MAX_WAITING: Final = 2_000
MAX_TEXT: Final = 300  # characters of a line
MAX_HOSTS: Final = 1_000

# What our commands may show in full but for addresses; of any other only the verb, whatever may stand behind it.
_OPEN = frozenset({"EHLO", "HELO", "STARTTLS", "MAIL", "RCPT", "DATA", "RSET", "QUIT", "."})
_ADDRESS = re.compile(r"([^\s<>@,;:\"'()\[\]])[^\s<>@,;:\"'()\[\]]*@")


class SmtpTrace:
    """What one process shows of its conversations: `take` it several times a second."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], datetime] = clock.now
    ) -> None:
        self.domains: dict[str, datetime] = {}  # recipients' domains (A-labels) that are watched, and until when
        self._hosts: dict[str, set[str]] = {}  # mail host -> watched domains that it serves
        self._monotonic = monotonic
        self._wall = wall
        self._lines: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._second = 0
        self._told = 0
        self._prefix = secrets.token_hex(2)
        self._numbers = itertools.count(1)

    def heed(self, traced: dict[str, datetime]) -> None:
        """Who is watched from now on; those whose time is over are not."""
        now = self._wall()
        self.domains = {domain: until for domain, until in traced.items() if until > now}
        if not self.domains:
            self._hosts.clear()

    def serves(self, domain: str, hosts: tuple[str, ...]) -> None:
        """Mail for a watched domain goes to these mail hosts: what opens a connection to them is shown too."""
        name = _a_labels(domain)
        if name in self.domains and len(self._hosts) < MAX_HOSTS:
            for host in hosts:
                self._hosts.setdefault(host, set()).add(name)

    def tap(self, host: str, ip: str) -> "ConnectionTrace":
        """For one connection."""
        return ConnectionTrace(self, f"{self._prefix}-{next(self._numbers):x}", host, ip)

    def of_host(self, host: str) -> list[str]:
        """The watched domains that a mail host serves."""
        return [domain for domain in sorted(self._hosts.get(host, ())) if domain in self.domains]

    def take(self) -> tuple[list[dict[str, Any]], int]:
        """The lines since the last time in the order of their telling, and how many were left out."""
        lines, self._lines = list(self._lines), deque()
        left_out, self._left_out = self._left_out, 0
        return lines, left_out

    def show(self, line: dict[str, Any]) -> None:
        """One line, within the bounds of the process."""
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._told = second, 0
        if self._told >= MAX_A_SECOND or len(self._lines) >= MAX_WAITING:
            self._left_out += 1
            return
        self._told += 1
        self._lines.append({"at": clock.iso(self._wall()), **line})


class ConnectionTrace:
    """What is shown of one connection. `envelope` says whose line it is; None: it opens or ends the session."""

    __slots__ = ("_count", "_host", "_id", "_ip", "_watch")

    def __init__(self, watch: SmtpTrace, conversation: str, host: str, ip: str) -> None:
        self._watch = watch
        self._id = conversation
        self._host = host
        self._ip = ip
        self._count = 0

    def command(self, envelope: Envelope | None, line: str) -> None:
        """A command of ours."""
        self._show(envelope, ">", shown_command(line.rstrip("\r\n")))

    def content(self, envelope: Envelope, octets: int) -> None:
        """The content and its final dot: nothing but how much it is."""
        self._show(envelope, ">", f"({octets:,} octets of content and the final dot)")

    def answer(self, envelope: Envelope | None, outcome: Reply | Break, seconds: float) -> None:
        """A reply, or how the conversation broke."""
        self._show(envelope, "<" if isinstance(outcome, Reply) else "*", outcome_text(outcome), seconds)

    def note(self, envelope: Envelope | None, text: str, seconds: float | None = None) -> None:
        """What happened to the connection itself."""
        self._show(envelope, "*", text, seconds)

    def _show(self, envelope: Envelope | None, way: str, text: str, seconds: float | None = None) -> None:
        domains = self._watch.of_host(self._host) if envelope is None else self._domain_of(envelope)
        if not domains or self._count > MAX_LINES_EACH:
            return
        self._count += 1
        if self._count > MAX_LINES_EACH:
            way, text, seconds = "*", "more of this conversation is not shown", None
        line: dict[str, Any] = {
            "conversation": self._id, "domains": domains, "mx": self._host, "ip": self._ip, "way": way,
            "text": masked(text)[:MAX_TEXT],
        }  # fmt: skip
        if seconds is not None:
            line["ms"] = round(seconds * 1_000, 1)
        self._watch.show(line)

    def _domain_of(self, envelope: Envelope) -> list[str]:
        name = _a_labels(envelope.recipients[0].rpartition("@")[2])
        return [name] if name in self._watch.domains else []


def _a_labels(domain: str) -> str:
    try:
        return domain_name(domain)
    except BadAddress:
        return domain.lower()


def masked(text: str) -> str:
    """Addresses by their first letter and domain: `a***@b.test`."""
    return _ADDRESS.sub(r"\1***@", text)


def shown_command(line: str) -> str:
    """A command as it may be shown: an answer to a challenge has no verb and is not shown at all."""
    verb, blank, _ = line.partition(" ")
    if verb.upper() in _OPEN:
        return line
    return f"{verb[:12].upper()} ***" if blank else "***"
