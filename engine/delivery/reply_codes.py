"""Meanings of reply codes by themselves: enhanced status (RFC 3463), three digits, phase. Used by `outcome.py`.

`outcome.py` consults these tables after the specific words of `provider_replies.toml`.
"""

from enum import StrEnum
from typing import NamedTuple

from engine.mail.replies import Phase


class Scope(StrEnum):
    """The subject that an outcome concerns, and so what must slow down."""

    RECIPIENT = "recipient"
    MESSAGE = "message"
    SITE = "site"
    SESSION = "session"


class Category(StrEnum):
    """The class of an outcome: `class` in an event's detail."""

    ACCEPTED = "accepted"
    USER_UNKNOWN = "user_unknown"
    MAILBOX_DISABLED = "mailbox_disabled"
    MAILBOX_UNAVAILABLE = "mailbox_unavailable"  # a 550 without further explanation
    MAILBOX_FULL = "mailbox_full"
    NULL_MX = "null_mx"
    RELAYING = "relaying"  # the server does not serve the recipient's domain
    SENDER_REFUSED = "sender_refused"
    POLICY = "policy"
    REPUTATION = "reputation"
    AUTH = "auth"
    RATE = "rate"
    GREYLISTED = "greylisted"
    CONTENT = "content"
    SIZE = "size"
    SMTPUTF8 = "smtputf8"
    PROTOCOL = "protocol"
    SYSTEM = "system"  # a fault of the remote server
    UNAVAILABLE = "unavailable"
    NETWORK = "network"
    DNS = "dns"
    TLS = "tls"
    UNKNOWN_AFTER_DOT = (
        "unknown_after_dot"  # the server may have stored the message: the next attempt may deliver a second copy
    )
    LOCAL = "local"  # a fault of this host; never counted against the site
    UNSIGNED = "unsigned"  # the sending domain was deleted, so there is no DKIM key
    OPERATOR = "operator"  # ended by the operator
    EXPIRED = "expired"  # the message's `deliverBy` passed while it waited


class ReplyMeaning(NamedTuple):
    """The class and the scope that a reply stands for."""

    category: Category
    scope: Scope


# Subjects of RFC 3463 3, as IANA's registry of SMTP enhanced status codes names them; X.0 has no meaning.
_SUBJECTS = {
    "1": "addressing", "2": "mailbox", "3": "mail_system", "4": "network_and_routing", "5": "mail_delivery_protocol",
    "6": "content_or_media", "7": "security_or_policy",
}  # fmt: skip


def subject_of(status: str) -> str | None:
    """Return the registered subject of an enhanced status such as 5.1.1; None for X.0 and for unregistered subjects."""
    return _SUBJECTS.get(status.split(".", 2)[1])


def by_status(status: str | None, code: int) -> ReplyMeaning | None:
    """Return the meaning of subject and detail of an enhanced status (RFC 3463); its class digit is ignored."""
    if status is None:
        return None
    subject, _, number = status[2:].partition(".")
    if subject == "7":
        return _by_policy(int(number), temporary=code < 500)
    if subject == "6" and number not in {"7", "8", "9", "10"}:
        return ReplyMeaning(Category.CONTENT, Scope.MESSAGE)
    return _BY_STATUS.get(f"{subject}.{number}")


def by_vague_status(status: str | None) -> ReplyMeaning | None:
    """Return the meaning of X.1.0 and X.2.0: the address or its mailbox, for reasons that the text may name."""
    return None if status is None else _BY_VAGUE_STATUS.get(status[2:])


_BY_VAGUE_STATUS: dict[str, ReplyMeaning] = {
    "1.0": ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 550 5.1.0 Address rejected
    "2.0": ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 450 4.2.0 Mailbox busy
}

_BY_STATUS: dict[str, ReplyMeaning] = {
    "1.1": ReplyMeaning(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 550 5.1.1 User unknown
    "1.2": ReplyMeaning(Category.DNS, Scope.RECIPIENT),  # 550 5.1.2 Host unknown
    "1.3": ReplyMeaning(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 501 5.1.3 Bad recipient address syntax
    "1.4": ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 550 5.1.4 Ambiguous address
    "1.6": ReplyMeaning(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 551 5.1.6 Mailbox has moved
    "1.7": ReplyMeaning(Category.SENDER_REFUSED, Scope.MESSAGE),  # 553 5.1.7 Bad sender address syntax
    "1.8": ReplyMeaning(Category.SENDER_REFUSED, Scope.MESSAGE),  # 553 5.1.8 Sender's domain does not exist
    "1.10": ReplyMeaning(Category.NULL_MX, Scope.RECIPIENT),  # 556 5.1.10 (RFC 7505 4.1)
    "2.1": ReplyMeaning(Category.MAILBOX_DISABLED, Scope.RECIPIENT),  # 550 5.2.1 Mailbox disabled
    "2.2": ReplyMeaning(Category.MAILBOX_FULL, Scope.RECIPIENT),  # 452 4.2.2 Over quota
    "2.3": ReplyMeaning(Category.SIZE, Scope.MESSAGE),  # 552 5.2.3 Longer than the recipient's limit
    "2.4": ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 450 4.2.4 List expansion failed
    "2.121": ReplyMeaning(Category.RATE, Scope.RECIPIENT),  # 554 5.2.121 Hourly limit of the pair (Exchange Online)
    "2.122": ReplyMeaning(Category.RATE, Scope.RECIPIENT),  # 554 5.2.122 Recipient's hourly limit (Exchange Online)
    "3.0": ReplyMeaning(Category.SYSTEM, Scope.SITE),  # 451 4.3.0 Temporary system problem
    "3.1": ReplyMeaning(Category.SYSTEM, Scope.SITE),  # 452 4.3.1 Insufficient system storage
    "3.2": ReplyMeaning(Category.UNAVAILABLE, Scope.SITE),  # 453 4.3.2 Not accepting network messages
    "3.3": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # 554 5.3.3 Feature not supported
    "3.4": ReplyMeaning(Category.SIZE, Scope.MESSAGE),  # 552 5.3.4 Message too big for system
    "3.5": ReplyMeaning(Category.SYSTEM, Scope.SITE),  # 451 4.3.5 Server configuration error
    "4.0": ReplyMeaning(Category.NETWORK, Scope.SITE),
    "4.1": ReplyMeaning(Category.NETWORK, Scope.SITE),  # 450 4.4.1 No answer from host
    "4.2": ReplyMeaning(Category.NETWORK, Scope.SESSION),  # 421 4.4.2 Connection timed out
    "4.3": ReplyMeaning(Category.DNS, Scope.SITE),  # 451 4.4.3 Directory server failure
    "4.4": ReplyMeaning(Category.DNS, Scope.SITE),  # 550 5.4.4 Unable to route
    "4.5": ReplyMeaning(Category.RATE, Scope.SITE),  # 421 4.4.5 Server busy (Gmail)
    "4.6": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # 554 5.4.6 Routing loop
    "4.7": ReplyMeaning(Category.NETWORK, Scope.MESSAGE),  # 550 5.4.7 Delivery time expired
    "5.0": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),
    "5.1": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # 502 5.5.1 Unrecognized command
    "5.2": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # 500 5.5.2 Syntax error
    "5.3": ReplyMeaning(Category.RATE, Scope.SESSION),  # 452 4.5.3 Too many recipients
    "5.4": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # 501 5.5.4 Invalid arguments
    "5.5": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),
    "5.6": ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # 500 5.5.6 Authentication exchange line too long
    "6.7": ReplyMeaning(Category.SMTPUTF8, Scope.MESSAGE),  # 553 5.6.7 Non-ASCII addresses not permitted
    "6.8": ReplyMeaning(Category.SMTPUTF8, Scope.MESSAGE),  # RFC 6531 3.5
    "6.9": ReplyMeaning(Category.SMTPUTF8, Scope.MESSAGE),
    "6.10": ReplyMeaning(Category.SMTPUTF8, Scope.MESSAGE),
}

_BY_POLICY: dict[int, ReplyMeaning] = {
    4: ReplyMeaning(Category.TLS, Scope.SITE),  # X.7.4 Security features not supported
    5: ReplyMeaning(Category.AUTH, Scope.MESSAGE),  # 554 5.7.5 DKIM check failed (Yahoo AU01)
    7: ReplyMeaning(Category.CONTENT, Scope.MESSAGE),  # X.7.7 Message integrity failure
    8: ReplyMeaning(Category.AUTH, Scope.MESSAGE),  # 535 5.7.8 Credentials invalid (RFC 4954)
    9: ReplyMeaning(Category.AUTH, Scope.MESSAGE),
    10: ReplyMeaning(Category.TLS, Scope.SITE),  # 523 5.7.10 Encryption needed
    11: ReplyMeaning(Category.TLS, Scope.SITE),
    17: ReplyMeaning(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 550 5.7.17 Mailbox owner has changed (RFC 7293)
    18: ReplyMeaning(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 550 5.7.18 Domain owner has changed (RFC 7293)
    25: ReplyMeaning(Category.AUTH, Scope.SITE),  # 550 5.7.25 Reverse DNS validation failed (RFC 7372)
    27: ReplyMeaning(Category.SENDER_REFUSED, Scope.MESSAGE),  # 550 5.7.27 Sender has null MX (RFC 7505 4.2)
    28: ReplyMeaning(Category.RATE, Scope.SITE),  # 421 4.7.28 Mail flood detected
    30: ReplyMeaning(Category.TLS, Scope.SITE),  # 530 5.7.30 REQUIRETLS support required (RFC 8689)
    509: ReplyMeaning(Category.AUTH, Scope.MESSAGE),  # 550 5.7.509 DMARC reject (Exchange Online)
    515: ReplyMeaning(Category.AUTH, Scope.MESSAGE),  # 550 5.7.515 Authentication level (Outlook.com)
}


def _by_policy(number: int, *, temporary: bool) -> ReplyMeaning:
    """Return the meaning of X.7.n: the server refuses us for any recipient, so it never suppresses."""
    found = _BY_POLICY.get(number)
    if found is not None:
        return found
    if 20 <= number <= 29:  # RFC 7372: DKIM 20-22, SPF 23-24, several 26; ARC 29 (RFC 8617)
        return ReplyMeaning(Category.AUTH, Scope.MESSAGE)
    if 500 <= number < 800:  # Exchange Online: 5xx and 6xx refuse the host, 7xx the sending tenant
        return ReplyMeaning(Category.RATE if temporary else Category.REPUTATION, Scope.SITE)
    return ReplyMeaning(Category.POLICY, Scope.SITE if temporary else Scope.MESSAGE)


def by_code(phase: Phase, code: int) -> ReplyMeaning | None:
    """Return the meaning of a three-digit code (RFC 5321 4.2.3, RFC 7504, RFC 4954) for a reply that has no other.

    A 550 after the server has taken the recipient concerns the content.
    """
    if code == 552:  # storage of the mailbox at RCPT; of the message (RFC 1870) elsewhere
        if phase is Phase.RCPT:
            return ReplyMeaning(Category.MAILBOX_FULL, Scope.RECIPIENT)
        return ReplyMeaning(Category.SIZE, Scope.MESSAGE)
    if code in _OF_MAILBOXES and phase in _OF_CONTENT:
        return None
    return _BY_CODE.get(code)


_OF_MAILBOXES = frozenset({550, 551, 553, 556})
_OF_CONTENT = frozenset({Phase.DATA, Phase.BODY})

_BY_CODE: dict[int, ReplyMeaning] = {
    421: ReplyMeaning(Category.UNAVAILABLE, Scope.SITE),  # service not available, closing
    450: ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # mailbox busy
    452: ReplyMeaning(Category.SYSTEM, Scope.SITE),  # insufficient system storage
    454: ReplyMeaning(Category.TLS, Scope.SITE),  # TLS not available (RFC 3207)
    455: ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # parameters not supported now
    500: ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),
    502: ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),
    503: ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),
    504: ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),
    521: ReplyMeaning(Category.UNAVAILABLE, Scope.SITE),  # host accepts no mail (RFC 7504 3)
    530: ReplyMeaning(Category.AUTH, Scope.MESSAGE),  # authentication required (RFC 4954)
    535: ReplyMeaning(Category.AUTH, Scope.MESSAGE),
    550: ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),
    551: ReplyMeaning(Category.USER_UNKNOWN, Scope.RECIPIENT),  # user not local
    553: ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # mailbox name not allowed
    555: ReplyMeaning(Category.PROTOCOL, Scope.MESSAGE),  # MAIL or RCPT parameters not recognized
    556: ReplyMeaning(Category.NULL_MX, Scope.RECIPIENT),  # domain does not accept mail (RFC 7504 4)
    571: ReplyMeaning(Category.POLICY, Scope.MESSAGE),  # delivery not authorized, message refused
}


def by_phase(phase: Phase, code: int) -> ReplyMeaning:
    """Return the most likely meaning of an unspecific code at this phase."""
    if phase is Phase.RCPT:
        if code < 500:
            return ReplyMeaning(Category.SYSTEM, Scope.RECIPIENT)
        return ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT)
    if phase is Phase.MAIL:
        return ReplyMeaning(Category.SYSTEM if code < 500 else Category.SENDER_REFUSED, Scope.MESSAGE)
    if phase in {Phase.DATA, Phase.BODY}:
        return ReplyMeaning(Category.SYSTEM if code < 500 else Category.POLICY, Scope.MESSAGE)
    if phase in {Phase.STARTTLS, Phase.TLS}:
        return ReplyMeaning(Category.TLS, Scope.SITE)
    return ReplyMeaning(Category.UNAVAILABLE, Scope.SITE)
