"""What a remote answer means: verdict, scope and class, decided here and nowhere else.

A reply is read in four steps, first finding wins: telling words (`provider_replies.toml`), the enhanced
status (RFC 3463), vague words, the three-digit code. Then the phase corrects the scope: before RCPT nothing
can be about a recipient. The first digit of the code alone decides between deferred and bounced.
"""

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply


class Verdict(StrEnum):
    """What becomes of the recipient after this attempt."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"


class Scope(StrEnum):
    """Whom the answer concerns, and so what has to slow down."""

    RECIPIENT = "recipient"
    MESSAGE = "message"
    SITE = "site"
    SESSION = "session"


class Category(StrEnum):
    """The `class` of an event's detail."""

    ACCEPTED = "accepted"
    USER_UNKNOWN = "user_unknown"
    MAILBOX_DISABLED = "mailbox_disabled"
    MAILBOX_UNAVAILABLE = "mailbox_unavailable"  # a 550 that says no more
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
    SYSTEM = "system"  # a fault on their side
    UNAVAILABLE = "unavailable"
    NETWORK = "network"
    DNS = "dns"
    TLS = "tls"
    UNKNOWN_AFTER_DOT = "unknown_after_dot"  # they may have it: the next try may be a second copy
    LOCAL = "local"  # ours: never counted against the peer


class Outcome(Struct, frozen=True):
    """One recipient's result. `suppress` says the address is dead; `diagnostic` is one printable line."""

    verdict: Verdict
    scope: Scope
    category: Category
    suppress: bool
    smtp_code: int | None
    enhanced_code: str | None
    diagnostic: str


# Looking up an enum member by attribute costs 40 ns in Python 3.11; every delivery passes here.
_BODY = Phase.BODY
_DELIVERED, _RECIPIENT, _ACCEPTED = Verdict.DELIVERED, Scope.RECIPIENT, Category.ACCEPTED


class _Finding(NamedTuple):
    category: Category
    scope: Scope


class _TextRule(Struct, frozen=True):
    text: str
    category: Category = msgspec.field(name="class")
    scope: Scope = Scope.RECIPIENT
    example: str = ""
    source: str = ""


class _Replies(Struct, frozen=True):
    rules: tuple[_TextRule, ...]
    hints: tuple[_TextRule, ...]


def classify(answer: Answer, *, alone: bool = True) -> Outcome:
    """The outcome of one recipient's answer; total, never raises.

    `alone` says that the recipient had the transaction to itself; otherwise a refusal at DATA or BODY is
    about the message, whatever it says of a mailbox. Only a 2xx to the final dot is a delivery.
    """
    said = answer.outcome
    if isinstance(said, Break):
        return _broken(answer.phase, said)
    if answer.phase is _BODY and 200 <= said.code < 300:
        return Outcome(
            verdict=_DELIVERED,
            scope=_RECIPIENT,
            category=_ACCEPTED,
            suppress=False,
            smtp_code=said.code,
            enhanced_code=said.enhanced,
            diagnostic=_line(said),
        )
    return _refused(answer.phase, said, alone=alone)


def detail(outcome: Outcome) -> dict[str, str | int]:
    """The outcome's share of an event's `data.detail`: snake_case, without what is unknown."""
    found: dict[str, str | int] = {"scope": outcome.scope.value, "class": outcome.category.value}
    if outcome.smtp_code is not None:
        found["smtp_code"] = outcome.smtp_code
    if outcome.enhanced_code is not None:
        found["enhanced_code"] = outcome.enhanced_code
    found["diagnostic"] = outcome.diagnostic
    return found


# --- replies -------------------------------------------------------------------------------------

_HERE = Path(__file__).parent
_REPLIES = msgspec.convert(tomllib.loads((_HERE / "provider_replies.toml").read_text("utf-8")), _Replies)
_ELLIPSIS = " … "

# Only these say that the address itself is dead. A full mailbox is bounced (the code is permanent) but
# people empty mailboxes: a soft failure never suppresses.
_DEAD = frozenset({
    Category.USER_UNKNOWN, Category.MAILBOX_DISABLED, Category.MAILBOX_UNAVAILABLE, Category.NULL_MX,
    Category.DNS,
})  # fmt: skip

# Before MAIL a reply knows nothing of the message: it is about the sending host.
_BEFORE_MAIL = frozenset({
    Phase.ROUTE, Phase.CONNECT, Phase.GREETING, Phase.EHLO, Phase.STARTTLS, Phase.TLS
})  # fmt: skip

# A 5xx that does not end the message:
# greeting: Postfix smtp_skip_5xx_greeting (default yes) goes to the next MX and defers when none is left,
#   since the reply is often a busy server's or a block of our address that is lifted within the hours;
# STARTTLS: Postfix defers with 4.7.5 when TLS is required and refused; without need we go on in plaintext.
_NEVER_FINAL = frozenset({Phase.CONNECT, Phase.GREETING, Phase.STARTTLS, Phase.TLS})

_STATUS = re.compile(r"[245]\.\d{1,3}\.\d{1,3}", re.ASCII)
_STATUS_IN_TEXT = re.compile(r"(?:^|[\s(#])([245]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)", re.ASCII)  # not an IP


def _refused(phase: Phase, reply: Reply, *, alone: bool) -> Outcome:
    severity = reply.code // 100
    diagnostic = _line(reply)
    if severity not in {4, 5}:  # a reply out of its place: the conversation can't be trusted
        return Outcome(
            verdict=Verdict.DEFERRED,
            scope=Scope.SESSION,
            category=Category.PROTOCOL,
            suppress=False,
            smtp_code=reply.code,
            enhanced_code=reply.enhanced,
            diagnostic=diagnostic,
        )
    status = _status(reply, severity)
    if phase is Phase.ROUTE:
        found = _unroutable(status)
    else:
        found = _find(phase, reply.code, status, _plain(reply.text, status))
        found = _within(phase, found, alone=alone)
    bounced = severity == 5 and phase not in _NEVER_FINAL
    suppress = bounced and found.scope is Scope.RECIPIENT and found.category in _DEAD
    return Outcome(
        verdict=Verdict.BOUNCED if bounced else Verdict.DEFERRED,
        scope=found.scope,
        category=found.category,
        suppress=suppress,
        smtp_code=reply.code,
        enhanced_code=status,
        diagnostic=diagnostic,
    )


def _line(reply: Reply) -> str:
    """The reply as one line, its enhanced status once."""
    if reply.enhanced is None or reply.text.startswith(reply.enhanced):
        return f"{reply.code} {reply.text}"
    return f"{reply.code} {reply.enhanced} {reply.text}"


def _status(reply: Reply, severity: int) -> str | None:
    """The enhanced status, also one inside the text, as `550 #5.1.0 Address rejected` has it."""
    if reply.enhanced is not None and _STATUS.fullmatch(reply.enhanced):
        return reply.enhanced
    match = _STATUS_IN_TEXT.search(reply.text)
    return match[1] if match is not None and match[1].startswith(str(severity)) else None


def _plain(text: str, status: str | None) -> str:
    """Lower case, single spaces, without the status that many servers repeat on every line, and without
    addresses: `<virus@b.test> unknown` is about no virus."""
    if status is not None:
        text = text.replace(status, "")
    words = text.lower().split()
    if "@" in text:
        words = [word for word in words if "@" not in word]
    return " ".join(words)


def _unroutable(status: str | None) -> _Finding:
    """A null MX is the owner's own word (RFC 7505). Other findings of our resolver never suppress: a
    resolver gone wrong, or a domain lapsed for a day, must not cost a customer its whole list."""
    if status == "5.1.10":
        return _Finding(Category.NULL_MX, Scope.RECIPIENT)
    if status == "5.4.6":
        return _Finding(Category.PROTOCOL, Scope.SITE)
    return _Finding(Category.DNS, Scope.SITE)


def _find(phase: Phase, code: int, status: str | None, text: str) -> _Finding:
    return (
        _by_text(_RULES, text)
        or _by_status(status, code)
        or _by_text(_HINTS, text)
        or _by_code(phase, code)
        or _by_phase(phase, code)
    )


def _by_text(rules: "tuple[_Words, ...]", text: str) -> _Finding | None:
    for first, rest, finding in rules:
        at = text.find(first)
        if at >= 0 and (not rest or _follow(text, at + len(first), rest)):
            return finding
    return None


def _follow(text: str, at: int, fragments: tuple[str, ...]) -> bool:
    for fragment in fragments:
        at = text.find(fragment, at)
        if at < 0:
            return False
        at += len(fragment)
    return True


class _Words(NamedTuple):
    first: str
    rest: tuple[str, ...]
    finding: _Finding


def _compiled(rules: tuple[_TextRule, ...]) -> tuple[_Words, ...]:
    words = []
    for rule in rules:
        first, *rest = rule.text.split(_ELLIPSIS)
        words.append(_Words(first, tuple(rest), _Finding(rule.category, rule.scope)))
    return tuple(words)


_RULES = _compiled(_REPLIES.rules)
_HINTS = _compiled(_REPLIES.hints)


def _by_status(status: str | None, code: int) -> _Finding | None:
    """By subject and detail of RFC 3463; the class digit is the code's business."""
    if status is None:
        return None
    subject, _, number = status[2:].partition(".")
    if subject == "7":
        return _by_policy(int(number), temporary=code < 500)
    if subject == "6" and number not in {"7", "8", "9", "10"}:
        return _Finding(Category.CONTENT, Scope.MESSAGE)
    return _BY_STATUS.get(f"{subject}.{number}")


_BY_STATUS: dict[str, _Finding] = {
    "1.0": _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 550 5.1.0 Address rejected
    "1.1": _Finding(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 550 5.1.1 User unknown
    "1.2": _Finding(Category.DNS, Scope.RECIPIENT),  # 550 5.1.2 Host unknown
    "1.3": _Finding(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 501 5.1.3 Bad recipient address syntax
    "1.4": _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 550 5.1.4 Ambiguous address
    "1.6": _Finding(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 551 5.1.6 Mailbox has moved
    "1.7": _Finding(Category.SENDER_REFUSED, Scope.MESSAGE),  # 553 5.1.7 Bad sender address syntax
    "1.8": _Finding(Category.SENDER_REFUSED, Scope.MESSAGE),  # 553 5.1.8 Sender's domain does not exist
    "1.10": _Finding(Category.NULL_MX, Scope.RECIPIENT),  # 556 5.1.10 (RFC 7505 4.1)
    "2.0": _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 450 4.2.0 Mailbox busy
    "2.1": _Finding(Category.MAILBOX_DISABLED, Scope.RECIPIENT),  # 550 5.2.1 Mailbox disabled
    "2.2": _Finding(Category.MAILBOX_FULL, Scope.RECIPIENT),  # 452 4.2.2 Over quota
    "2.3": _Finding(Category.SIZE, Scope.MESSAGE),  # 552 5.2.3 Longer than the recipient's limit
    "2.4": _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # 450 4.2.4 List expansion failed
    "3.0": _Finding(Category.SYSTEM, Scope.SITE),  # 451 4.3.0 Temporary system problem
    "3.1": _Finding(Category.SYSTEM, Scope.SITE),  # 452 4.3.1 Insufficient system storage
    "3.2": _Finding(Category.UNAVAILABLE, Scope.SITE),  # 453 4.3.2 Not accepting network messages
    "3.3": _Finding(Category.PROTOCOL, Scope.MESSAGE),  # 554 5.3.3 Feature not supported
    "3.4": _Finding(Category.SIZE, Scope.MESSAGE),  # 552 5.3.4 Message too big for system
    "3.5": _Finding(Category.SYSTEM, Scope.SITE),  # 451 4.3.5 Server configuration error
    "4.0": _Finding(Category.NETWORK, Scope.SITE),
    "4.1": _Finding(Category.NETWORK, Scope.SITE),  # 450 4.4.1 No answer from host
    "4.2": _Finding(Category.NETWORK, Scope.SESSION),  # 421 4.4.2 Connection timed out
    "4.3": _Finding(Category.DNS, Scope.SITE),  # 451 4.4.3 Directory server failure
    "4.4": _Finding(Category.DNS, Scope.SITE),  # 550 5.4.4 Unable to route
    "4.5": _Finding(Category.RATE, Scope.SITE),  # 421 4.4.5 Server busy (Gmail)
    "4.6": _Finding(Category.PROTOCOL, Scope.MESSAGE),  # 554 5.4.6 Routing loop
    "4.7": _Finding(Category.NETWORK, Scope.MESSAGE),  # 550 5.4.7 Delivery time expired
    "5.0": _Finding(Category.PROTOCOL, Scope.MESSAGE),
    "5.1": _Finding(Category.PROTOCOL, Scope.MESSAGE),  # 502 5.5.1 Unrecognized command
    "5.2": _Finding(Category.PROTOCOL, Scope.MESSAGE),  # 500 5.5.2 Syntax error
    "5.3": _Finding(Category.RATE, Scope.SESSION),  # 452 4.5.3 Too many recipients
    "5.4": _Finding(Category.PROTOCOL, Scope.MESSAGE),  # 501 5.5.4 Invalid arguments
    "5.5": _Finding(Category.PROTOCOL, Scope.MESSAGE),
    "5.6": _Finding(Category.PROTOCOL, Scope.MESSAGE),  # 500 5.5.6 Authentication exchange line too long
    "6.7": _Finding(Category.SMTPUTF8, Scope.MESSAGE),  # 553 5.6.7 Non-ASCII addresses not permitted
    "6.8": _Finding(Category.SMTPUTF8, Scope.MESSAGE),  # RFC 6531 3.5
    "6.9": _Finding(Category.SMTPUTF8, Scope.MESSAGE),
    "6.10": _Finding(Category.SMTPUTF8, Scope.MESSAGE),
}

_BY_POLICY: dict[int, _Finding] = {
    4: _Finding(Category.TLS, Scope.SITE),  # X.7.4 Security features not supported
    5: _Finding(Category.AUTH, Scope.MESSAGE),  # 554 5.7.5 DKIM check failed (Yahoo AU01)
    7: _Finding(Category.CONTENT, Scope.MESSAGE),  # X.7.7 Message integrity failure
    8: _Finding(Category.AUTH, Scope.MESSAGE),  # 535 5.7.8 Credentials invalid (RFC 4954)
    9: _Finding(Category.AUTH, Scope.MESSAGE),
    10: _Finding(Category.TLS, Scope.SITE),  # 523 5.7.10 Encryption needed
    11: _Finding(Category.TLS, Scope.SITE),
    17: _Finding(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 550 5.7.17 Mailbox owner has changed (RFC 7293)
    18: _Finding(Category.USER_UNKNOWN, Scope.RECIPIENT),  # 550 5.7.18 Domain owner has changed (RFC 7293)
    25: _Finding(Category.AUTH, Scope.SITE),  # 550 5.7.25 Reverse DNS validation failed (RFC 7372)
    27: _Finding(Category.SENDER_REFUSED, Scope.MESSAGE),  # 550 5.7.27 Sender has null MX (RFC 7505 4.2)
    28: _Finding(Category.RATE, Scope.SITE),  # 421 4.7.28 Mail flood detected
    30: _Finding(Category.TLS, Scope.SITE),  # 530 5.7.30 REQUIRETLS support required (RFC 8689)
    509: _Finding(Category.AUTH, Scope.MESSAGE),  # 550 5.7.509 DMARC reject (Exchange Online)
    515: _Finding(Category.AUTH, Scope.MESSAGE),  # 550 5.7.515 Authentication level (Outlook.com)
}


def _by_policy(number: int, *, temporary: bool) -> _Finding:
    """X.7.n says that we are refused, whoever the recipient is; never a reason to suppress."""
    found = _BY_POLICY.get(number)
    if found is not None:
        return found
    if 20 <= number <= 29:  # RFC 7372: DKIM 20-22, SPF 23-24, several 26; ARC 29 (RFC 8617)
        return _Finding(Category.AUTH, Scope.MESSAGE)
    if 500 <= number < 800:  # Exchange Online: 5xx and 6xx refuse the host, 7xx the sending tenant
        return _Finding(Category.RATE if temporary else Category.REPUTATION, Scope.SITE)
    return _Finding(Category.POLICY, Scope.SITE if temporary else Scope.MESSAGE)


def _by_code(phase: Phase, code: int) -> _Finding | None:
    """RFC 5321 4.2.3, RFC 7504 and RFC 4954 for a reply that says nothing else."""
    if code == 552:  # storage of the mailbox at RCPT; of the message (RFC 1870) elsewhere
        if phase is Phase.RCPT:
            return _Finding(Category.MAILBOX_FULL, Scope.RECIPIENT)
        return _Finding(Category.SIZE, Scope.MESSAGE)
    return _BY_CODE.get(code)


_BY_CODE: dict[int, _Finding] = {
    421: _Finding(Category.UNAVAILABLE, Scope.SITE),  # service not available, closing
    450: _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # mailbox busy
    452: _Finding(Category.SYSTEM, Scope.SITE),  # insufficient system storage
    454: _Finding(Category.TLS, Scope.SITE),  # TLS not available (RFC 3207)
    455: _Finding(Category.PROTOCOL, Scope.MESSAGE),  # parameters not supported now
    500: _Finding(Category.PROTOCOL, Scope.MESSAGE),
    502: _Finding(Category.PROTOCOL, Scope.MESSAGE),
    503: _Finding(Category.PROTOCOL, Scope.MESSAGE),
    504: _Finding(Category.PROTOCOL, Scope.MESSAGE),
    521: _Finding(Category.UNAVAILABLE, Scope.SITE),  # host accepts no mail (RFC 7504 3)
    530: _Finding(Category.AUTH, Scope.MESSAGE),  # authentication required (RFC 4954)
    535: _Finding(Category.AUTH, Scope.MESSAGE),
    550: _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),
    551: _Finding(Category.USER_UNKNOWN, Scope.RECIPIENT),  # user not local
    553: _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT),  # mailbox name not allowed
    555: _Finding(Category.PROTOCOL, Scope.MESSAGE),  # MAIL or RCPT parameters not recognized
    556: _Finding(Category.NULL_MX, Scope.RECIPIENT),  # domain does not accept mail (RFC 7504 4)
    571: _Finding(Category.POLICY, Scope.MESSAGE),  # delivery not authorized, message refused
}


def _by_phase(phase: Phase, code: int) -> _Finding:
    if phase is Phase.RCPT:
        if code < 500:
            return _Finding(Category.SYSTEM, Scope.RECIPIENT)
        return _Finding(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT)
    if phase is Phase.MAIL:
        return _Finding(Category.SYSTEM if code < 500 else Category.SENDER_REFUSED, Scope.MESSAGE)
    if phase in {Phase.DATA, Phase.BODY}:
        return _Finding(Category.SYSTEM if code < 500 else Category.POLICY, Scope.MESSAGE)
    if phase in {Phase.STARTTLS, Phase.TLS}:
        return _Finding(Category.TLS, Scope.SITE)
    return _Finding(Category.UNAVAILABLE, Scope.SITE)


def _within(phase: Phase, found: _Finding, *, alone: bool) -> _Finding:
    """Narrow a finding to what a server can know at this phase."""
    if phase in _BEFORE_MAIL:
        if found.scope is Scope.SESSION:
            return found
        personal = found.scope is Scope.RECIPIENT
        return _Finding(Category.UNAVAILABLE if personal else found.category, Scope.SITE)
    if found.scope is not Scope.RECIPIENT:
        return found
    if phase is Phase.MAIL:  # the sender is all it has seen
        return _Finding(Category.SENDER_REFUSED, Scope.MESSAGE)
    if phase is not Phase.RCPT and not alone:
        return _Finding(found.category, Scope.MESSAGE)
    return found


# --- breaks --------------------------------------------------------------------------------------

_BREAK_CATEGORY = {
    BreakKind.TIMEOUT: Category.NETWORK,
    BreakKind.CLOSED: Category.NETWORK,
    BreakKind.REFUSED: Category.NETWORK,
    BreakKind.PROTOCOL: Category.PROTOCOL,
    BreakKind.TLS: Category.TLS,
    BreakKind.DNS: Category.DNS,
    BreakKind.LOCAL: Category.LOCAL,
}
_SITE_WIDE = frozenset({BreakKind.TIMEOUT, BreakKind.REFUSED, BreakKind.TLS, BreakKind.DNS})


def _broken(phase: Phase, broken: Break) -> Outcome:
    """A conversation without an answer is always tried again: only a reply can be final.

    A connection that closes in mid-transaction is that session's end; one that never comes up, or a peer
    that stays silent, concerns the site.
    """
    kind = broken.kind
    category = _BREAK_CATEGORY[kind]
    if kind is BreakKind.LOCAL:
        scope = Scope.SESSION
    elif kind in _SITE_WIDE or phase in _BEFORE_MAIL:
        scope = Scope.SITE
    else:
        scope = Scope.SESSION
    if phase is Phase.BODY and kind in {BreakKind.TIMEOUT, BreakKind.CLOSED, BreakKind.PROTOCOL}:
        category = Category.UNKNOWN_AFTER_DOT
    return Outcome(
        verdict=Verdict.DEFERRED,
        scope=scope,
        category=category,
        suppress=False,
        smtp_code=None,
        enhanced_code=None,
        diagnostic=broken.detail,
    )
