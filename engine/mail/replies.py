"""What a remote server said, or how the conversation broke: values, never exceptions that escape."""

from enum import StrEnum

from msgspec import Struct


class Phase(StrEnum):
    """Where in the conversation something happened (RFC 5321 section 3)."""

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
    """One SMTP reply. `text` is printable, valid UTF-8, at most 1,000 characters, lines joined by a space.

    `text` is all that followed the code, so it still begins with the enhanced code where there is one.
    """

    code: int
    text: str
    enhanced: str | None = None  # RFC 3463, "5.1.1"
    local: bool = False  # our own decision from what the server announced; it never crossed the wire


class BreakKind(StrEnum):
    """How a conversation broke without a reply."""

    TIMEOUT = "timeout"
    CLOSED = "closed"  # peer closed or reset
    REFUSED = "refused"  # connection refused or unreachable
    PROTOCOL = "protocol"  # not SMTP: oversized, malformed, binary
    TLS = "tls"
    DNS = "dns"
    LOCAL = "local"  # our own limit or shutdown: says nothing about the peer


class Break(Struct, frozen=True, gc=False):
    """The conversation ended without a reply to what was asked."""

    kind: BreakKind
    detail: str  # one printable sentence


class Answer(Struct, frozen=True, gc=False):
    """What came back for one recipient, and at which phase it was decided."""

    phase: Phase
    outcome: Reply | Break
