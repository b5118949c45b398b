"""Define replies of remote servers, and failures of a connection, as values; remote behaviour never raises."""

from enum import StrEnum

from msgspec import Struct


class Phase(StrEnum):
    """The phase of a delivery attempt in which something happened (RFC 5321 section 3)."""

    ROUTE = "route"  # before any connection: DNS
    CONNECT = "connect"
    GREETING = "greeting"
    EHLO = "ehlo"
    STARTTLS = "starttls"  # the command's reply
    TLS = "tls"  # the handshake
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"  # the DATA command's reply
    BODY = "body"  # from the first content octet to the reply to the final dot


class Reply(Struct, frozen=True, gc=False):
    """An SMTP reply. `text` is printable, valid UTF-8, at most 1,000 characters, its lines joined by a space.

    `text` is everything after the code, including the enhanced code if there is one.
    """

    code: int
    text: str
    enhanced: str | None = None  # RFC 3463, "5.1.1"
    local: bool = False  # decided by this service from the capabilities of the server; not received from it


class BreakKind(StrEnum):
    """The way in which a connection failed without a reply."""

    TIMEOUT = "timeout"
    CLOSED = "closed"  # peer closed or reset
    REFUSED = "refused"  # connection refused or unreachable
    PROTOCOL = "protocol"  # not SMTP: oversized, malformed, binary
    TLS = "tls"
    DNS = "dns"
    LOCAL = "local"  # our own limit or shutdown, not a fault of the peer


class Break(Struct, frozen=True, gc=False):
    """The connection failed before the expected reply."""

    kind: BreakKind
    detail: str  # one printable sentence


class Answer(Struct, frozen=True, gc=False):
    """The reply or failure for one recipient, and the phase in which it occurred."""

    phase: Phase
    outcome: Reply | Break
