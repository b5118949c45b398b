"""How a connection to a mail server may come about: its time-outs, and what a failed attempt says.

`connection` opens the socket; what went wrong there is put into words here, for the waybill and for the next try.
"""

import errno
import ipaddress
import ssl
from collections.abc import Callable

from msgspec import Struct

from engine.mail.replies import Break, BreakKind, Phase, Reply
from mta.smtp.client.tls_failures import TlsFailure
from mta.smtp.client.transcript import Json

CUT_SHORT = ", cut short because other mail waited for a connection"
_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class SmtpTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds a stage may take as a whole: a reply that trickles in does not prolong it (RFC 5321 4.5.3.2)."""

    connect_s: float = 30.0  # Postfix smtp_connect_timeout
    tls_s: float = 60.0  # handshake
    reply_s: float = 300.0  # greeting, EHLO, MAIL, each RCPT
    data_s: float = 120.0  # the reply to DATA
    envelope_s: float = 900.0  # from the reply to MAIL to that to DATA, however many recipients
    block_s: float = 180.0  # each 128 KB of content
    content_s: float = 1_800.0  # all of it
    final_dot_s: float = 600.0  # an early cut delivers twice
    quit_s: float = 2.0  # manners, within reason


class OpeningAbort:
    """Ends one opening before its time-outs do: `make` is called by whoever needs its place."""

    __slots__ = ("_end", "made")

    def __init__(self) -> None:
        self.made = False
        self._end: Callable[[], None] | None = None

    def ends(self, end: Callable[[], None] | None) -> None:
        """Let `end` end the present stage of the opening."""
        self._end = end

    def make(self) -> None:
        """End the opening now; without effect on one that has come about."""
        if not self.made and self._end is not None:
            self.made = True
            self._end()


class ConnectFailed(Exception):  # noqa: N818 - named for what happened
    """No session came about: `outcome` at `phase`, and the steps up to there.

    `fault` is set when TLS is to blame; the server might take the mail in plaintext. `resumed` says that the
    handshake tried to take up an earlier session: a full one may do.
    """

    def __init__(
        self,
        phase: Phase,
        outcome: Reply | Break,
        transcript: tuple[Json, ...],
        *,
        fault: TlsFailure | None = None,
        resumed: bool = False,
    ) -> None:
        super().__init__(phase, outcome)
        self.phase = phase
        self.outcome = outcome
        self.transcript = transcript
        self.fault = fault
        self.resumed = resumed


def sni(name: str) -> str | None:
    """The name to ask for in a handshake: never an address (RFC 6066 3)."""
    if ":" not in name and not name[-1:].isdigit():  # as good as all: spare the exception
        return name.lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower()
    return None


def blames_tls(phase: Phase, outcome: Break, *, secured: bool) -> bool:
    """True when the way a session broke says that the server can't do TLS.

    In TLS 1.3 a server that dislikes the handshake says so behind it: then the first EHLO over TLS breaks.
    """
    if outcome.kind is BreakKind.LOCAL:
        return False
    if phase in (Phase.STARTTLS, Phase.TLS):
        return True
    return secured and phase is Phase.EHLO and outcome.kind in (BreakKind.CLOSED, BreakKind.TLS)


def connect_break(error: OSError, limit_s: float, *, cut: bool = False) -> Break:
    """Why there is no connection; a shortage of ours says nothing about the server."""
    if isinstance(error, TimeoutError):
        return Break(BreakKind.TIMEOUT, f"no connection within {limit_s:.3g} s{CUT_SHORT if cut else ''}")
    if error.errno in _SHORTAGE:
        return Break(BreakKind.LOCAL, f"we could not open a connection: {words(error)}")
    return Break(BreakKind.REFUSED, error_text(error))


def handshake_failure(error: OSError | ValueError) -> str:
    """Why the handshake failed."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"handshake failed: {error.reason.replace('_', ' ').lower()}"
    return f"handshake failed: {words(error)}"


def error_text(error: Exception) -> str:
    """An error in one short printable sentence."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return "".join(letter if letter.isprintable() else " " for letter in text)[:200]
