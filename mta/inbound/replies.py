"""The replies of the MX (RFC 5321 4.2, enhanced codes of RFC 3463 and RFC 5248)."""

from enum import StrEnum
from typing import Final

from engine.receiving.types import ReceiveOutcome, RecipientRefusal

MAX_RECIPIENTS: Final = 100  # RFC 5321 4.5.3.1.8 asks for 100 at least
MAX_REPORT_ADDRESSES: Final = 4  # of one message; each gets a copy of the bytes. Reports have one recipient
MAX_RECEIVED: Final = 50  # Received fields; RFC 5321 6.3 asks for 100 hops at least to be allowed, loops end sooner

TEMPORARY: Final = "451 4.3.0 The message can't be accepted just now; try again shortly"
NO_ROOM: Final = "452 4.3.1 There is no room for messages just now; try again shortly"
MONTH_USED: Final = "452 4.2.2 The recipient's plan receives no more mail this month"
DISABLED: Final = "550 5.2.1 The mailbox is disabled"
NETWORK_LIMIT: Final = "452 4.7.0 Your network has sent too much to report and postmaster addresses; try again later"
POSTMASTER_LIMIT: Final = "452 4.2.2 The postmaster mailbox takes no more mail today; try again later"
REPORTS_FULL: Final = "452 4.3.1 Too many reports are waiting to be read; try again later"
TOO_MANY_UNKNOWN: Final = "421 4.7.0 Too many unknown recipients; try again later"
TOO_MANY_RECIPIENTS: Final = f"452 4.5.3 A message goes to at most {MAX_RECIPIENTS} recipients at once"
TOO_MANY_REPORTS: Final = f"452 4.5.3 A message goes to at most {MAX_REPORT_ADDRESSES} report addresses at once"

BY_REFUSAL: Final = {
    RecipientRefusal.UNKNOWN: "550 5.1.1 There is no such mailbox here",
    RecipientRefusal.DISABLED: DISABLED,
    RecipientRefusal.NOT_OURS: "550 5.7.1 This server does not take mail for the recipient's domain",
    RecipientRefusal.MONTH_USED: MONTH_USED,
}


class MessageResult(StrEnum):
    """The result of a message after its final dot; also the label of the metric."""

    STORED = "stored"
    MONTH_USED = "month_used"
    GONE = "gone"
    SOME_GONE = "some_gone"
    NETWORK_LIMIT = "network_limit"
    POSTMASTER_LIMIT = "postmaster_limit"
    REPORTS_FULL = "reports_full"
    TOO_LARGE = "too_large"
    NO_MEMORY = "no_memory"
    BAD_OCTETS = "bad_octets"
    LOOP = "loop"
    SPAM = "spam"
    SCANNER = "scanner"
    DATABASE = "database"
    DISK_FULL = "disk_full"
    TIMEOUT = "timeout"


_BY_RESULT: Final = {
    MessageResult.STORED: "250 2.0.0 Stored",
    MessageResult.MONTH_USED: MONTH_USED,
    MessageResult.GONE: DISABLED,
    MessageResult.SOME_GONE: TEMPORARY,
    MessageResult.NETWORK_LIMIT: NETWORK_LIMIT,
    MessageResult.POSTMASTER_LIMIT: POSTMASTER_LIMIT,
    MessageResult.REPORTS_FULL: REPORTS_FULL,
    MessageResult.NO_MEMORY: NO_ROOM,
    MessageResult.BAD_OCTETS: "550 5.6.11 The message holds NUL, or a CR or LF that is not part of CRLF",
    MessageResult.LOOP: f"554 5.4.6 The message has more than {MAX_RECEIVED} Received fields: it runs in a loop",
    MessageResult.SPAM: "550 5.7.1 The message looks like spam",
    MessageResult.SCANNER: TEMPORARY,
    MessageResult.DATABASE: TEMPORARY,
    MessageResult.DISK_FULL: NO_ROOM,
    MessageResult.TIMEOUT: TEMPORARY,
}


def reply(result: MessageResult, *, max_bytes: int) -> str:
    """Return the reply to the final dot."""
    if result is MessageResult.TOO_LARGE:
        return f"552 5.3.4 The message may have {max_bytes} octets at the most"
    return _BY_RESULT[result]


def stored_result(outcome: ReceiveOutcome, recipients: int) -> MessageResult:
    """Return the result for the outcome of storing a message for so many recipients.

    If one of several is gone, the sender tries again and learns at RCPT which one; the copies that were stored are not
    stored twice.
    """
    if outcome is ReceiveOutcome.STORED:
        return MessageResult.STORED
    if outcome is ReceiveOutcome.MONTH_USED:
        return MessageResult.MONTH_USED
    return MessageResult.GONE if recipients == 1 else MessageResult.SOME_GONE
