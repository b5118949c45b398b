"""A refusal as an SMTP reply: code, enhanced code (RFC 3463, RFC 5248), the registry's type, the sentence.

`550 5.7.1 [domain_not_verified] …`: the type stands between brackets right after the enhanced code, always, so
that a program that sends through the relay can branch on it as one that uses the API does.
"""

import re
from typing import Final

from engine.base.errors import ErrorType, NoRoom, Refusal
from engine.mail.submitted import Flaw

MAX_REPLY: Final = 510  # octets without CRLF: RFC 5321 4.5.3.1.5

_BY_TYPE: Final[dict[ErrorType, str]] = {
    ErrorType.INVALID_REQUEST: "550 5.6.0",
    ErrorType.UNAUTHORIZED: "535 5.7.8",
    ErrorType.FORBIDDEN: "550 5.7.1",
    ErrorType.DOMAIN_NOT_VERIFIED: "550 5.7.1",
    ErrorType.NOT_FOUND: "550 5.7.1",
    ErrorType.PAYLOAD_TOO_LARGE: "552 5.3.4",
    ErrorType.INVALID_ADDRESS: "553 5.1.3",
    ErrorType.SUPPRESSED: "550 5.7.1",
    ErrorType.ATTACHMENT_BLOCKED: "550 5.7.0",
    ErrorType.TEMPLATE_ERROR: "550 5.6.0",
    # What ends by itself is temporary: a client that keeps a queue sends it again, and nothing is lost.
    ErrorType.RATE_LIMITED: "451 4.7.0",
    ErrorType.DAILY_LIMIT_REACHED: "452 4.7.1",
    ErrorType.MONTHLY_LIMIT_REACHED: "452 4.7.1",
    ErrorType.PLATFORM_PAUSED: "452 4.3.2",
    ErrorType.UNAVAILABLE: "451 4.3.0",
}
BY_FLAW: Final[dict[Flaw, str]] = {
    Flaw.OCTETS: "550 5.6.11",  # invalid characters
    Flaw.LINE: "500 5.6.0",  # RFC 5321 4.5.3.1.10
    Flaw.HEADER: "550 5.6.0",
    Flaw.CHARSET: "550 5.6.7",  # RFC 6531 4.3
    Flaw.SENDER: "550 5.6.0",
    Flaw.LOOP: "554 5.4.6",  # routing loop
}
_unprintable = re.compile(r"[^\x20-\x7e]").sub


def refusal_reply(refusal: Refusal) -> str:
    """The reply for a refusal of the registry."""
    codes = "452 4.3.1" if isinstance(refusal, NoRoom) else _BY_TYPE.get(refusal.kind)
    if codes is None:
        codes = "451 4.3.0" if refusal.status >= 500 or refusal.status == 429 else "550 5.7.1"
    return reply_line(codes, refusal.kind, refusal.message)


def reply_line(codes: str, kind: ErrorType, sentence: str) -> str:
    """One reply line in ASCII, cut to what SMTP allows."""
    return _unprintable("?", f"{codes} [{kind.value}] {sentence}")[:MAX_REPLY]
