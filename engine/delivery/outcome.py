"""Classify the replies of remote servers: verdict, scope and class. Used for every delivery attempt.

The first step that finds a meaning decides: words that refuse us, words about the mailbox (`provider_replies.toml`), a
specific enhanced status (unless general words contradict it, see `_read`), general words, a vague status, the
three-digit code. Then the phase corrects the scope: before RCPT no reply can concern a recipient, and after the content
a bare code concerns the message. The first digit of the code alone decides between deferred and bounced. `_read`
decides whether a reply is clear enough to suppress the address.
"""

import re
from enum import StrEnum

from msgspec import Struct

from engine.delivery.reply_codes import (
    Category,
    ReplyMeaning,
    Scope,
    by_code,
    by_phase,
    by_status,
    by_vague_status,
    subject_of,
)
from engine.delivery.reply_rules import (
    HINTS,
    RECIPIENTS,
    REFUSALS,
    is_bare,
    is_empty,
    is_passing,
    is_unexplained,
    names_a_mailbox_only,
    names_the_sender,
    words_of,
)
from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply

__all__ = ["Category", "Outcome", "Scope", "Verdict", "classify", "detail"]


class Verdict(StrEnum):
    """The result of an attempt for one recipient."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"


class Outcome(Struct, frozen=True):
    """A recipient's outcome.

    `suppress` is True if the address proved invalid; `diagnostic` is one printable line. `unexplained` is True for a
    bounce of the recipient without a word about its cause, which suppresses only when it repeats.
    """

    verdict: Verdict
    scope: Scope
    category: Category
    suppress: bool
    smtp_code: int | None
    enhanced_code: str | None
    diagnostic: str
    unexplained: bool = False


# Looking up an enum member by attribute costs 40 ns in Python 3.11; every delivery passes here.
_BODY = Phase.BODY
_DELIVERED, _RECIPIENT, _ACCEPTED = Verdict.DELIVERED, Scope.RECIPIENT, Category.ACCEPTED


def classify(answer: Answer, *, alone: bool = True) -> Outcome:
    """Return the outcome of one recipient's answer; never raises.

    `alone` is True if the recipient was the only one of the transaction; otherwise a refusal at DATA or BODY concerns
    the message even if it names a mailbox. Only a 2xx to the final dot is a delivery.
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
    """Return the outcome's part of an event's `data.detail`, in snake_case, without unknown values."""
    found: dict[str, str | int] = {"scope": outcome.scope.value, "class": outcome.category.value}
    if outcome.smtp_code is not None:
        found["smtp_code"] = outcome.smtp_code
    if outcome.enhanced_code is not None:
        found["enhanced_code"] = outcome.enhanced_code
        subject = subject_of(outcome.enhanced_code)
        if subject is not None:
            found["iana_class"] = subject
    found["diagnostic"] = outcome.diagnostic
    return found


# --- replies -------------------------------------------------------------------------------------

# Only these classes prove that the address itself is invalid. A full mailbox may bounce (the code is permanent), but
# its owner can empty it, so it never suppresses.
_DEAD = frozenset({
    Category.USER_UNKNOWN, Category.MAILBOX_DISABLED, Category.MAILBOX_UNAVAILABLE, Category.NULL_MX,
    Category.DNS,
})  # fmt: skip

_UNAVAILABLE = ReplyMeaning(Category.MAILBOX_UNAVAILABLE, Scope.RECIPIENT)

# These say that the server refuses us, our sender or our message.
_REFUSES_US = frozenset({
    Category.POLICY, Category.REPUTATION, Category.AUTH, Category.RATE, Category.CONTENT, Category.SENDER_REFUSED,
    Category.RELAYING,
})  # fmt: skip

# Before MAIL the server has seen nothing of the message, so its reply concerns the sending host.
_BEFORE_MAIL = frozenset({
    Phase.ROUTE, Phase.CONNECT, Phase.GREETING, Phase.EHLO, Phase.STARTTLS, Phase.TLS
})  # fmt: skip

# A 5xx that does not end the message:
# greeting: Postfix smtp_skip_5xx_greeting (default yes) goes to the next MX and defers when none is left,
#   since the reply is often a busy server's or a block of our address that is lifted within the hours;
# STARTTLS: Postfix defers with 4.7.5 when TLS is required and refused; without need we go on in plaintext.
# A 5xx about the session (too many recipients) is not final either while the transaction has several: RFC 5321
# 4.5.3.1.10 treats such a 552 as temporary, and the other recipients go in another session.
_NEVER_FINAL = frozenset({Phase.CONNECT, Phase.GREETING, Phase.STARTTLS, Phase.TLS})

# The recipient's domain does not exist or takes no mail, whatever the words say of it: 5.1.2 and 5.1.10.
_OF_DOMAINS = frozenset({"1.2", "1.10"})
_NO_DOMAIN = frozenset({Category.DNS, Category.NULL_MX})
_NOT_LOCAL = 551  # RFC 5321 4.2.3: a code that is about the address even without words
_NO_MAIL_HERE = 556  # RFC 7504 4: the domain takes no mail, whatever the words

_CLOSING = 421
_STATUS = re.compile(r"[245]\.\d{1,3}\.\d{1,3}", re.ASCII)
_STATUS_IN_TEXT = re.compile(r"(?:^|[\s(#])([245]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)", re.ASCII)  # not an IP


def _refused(phase: Phase, reply: Reply, *, alone: bool) -> Outcome:
    severity = reply.code // 100
    diagnostic = _line(reply)
    if severity not in {4, 5}:  # a reply that does not fit the command: the session is out of step
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
    words, sure = words_of(reply.text), True
    if phase is Phase.ROUTE:
        found = _unroutable(status)
    else:
        found, sure = _read(phase, reply.code, status, words)
        if reply.code == _CLOSING and phase is not Phase.RCPT and found.scope in {Scope.MESSAGE, Scope.RECIPIENT}:
            # The server closes the connection (RFC 5321 3.8), so its words concern our host, not this sender.
            found = by_status(status, reply.code) or by_code(phase, reply.code) or found
        found = _within(phase, found, alone=alone)
    one_of_many = phase is Phase.RCPT and found.scope is Scope.SESSION and not alone
    bounced = severity == 5 and phase not in _NEVER_FINAL and not one_of_many
    suppress = bounced and sure and found.scope is Scope.RECIPIENT and found.category in _DEAD
    refused = bounced and not suppress and phase is Phase.RCPT and found == _UNAVAILABLE
    return Outcome(
        verdict=Verdict.BOUNCED if bounced else Verdict.DEFERRED,
        scope=found.scope,
        category=found.category,
        suppress=suppress,
        smtp_code=reply.code,
        enhanced_code=status,
        diagnostic=diagnostic,
        unexplained=refused and is_unexplained(words),
    )


def _line(reply: Reply) -> str:
    """Return the reply as one line that has its enhanced status once."""
    if reply.enhanced is None or reply.text.startswith(reply.enhanced):
        return f"{reply.code} {reply.text}"
    return f"{reply.code} {reply.enhanced} {reply.text}"


def _status(reply: Reply, severity: int) -> str | None:
    """Return the enhanced status; also one inside the text, as in `550 #5.1.0 Address rejected`."""
    if reply.enhanced is not None and _STATUS.fullmatch(reply.enhanced):
        return reply.enhanced
    match = _STATUS_IN_TEXT.search(reply.text)
    return match[1] if match is not None and match[1].startswith(str(severity)) else None


def _unroutable(status: str | None) -> ReplyMeaning:
    """Return the finding for a domain without a usable mail server.

    A null MX is the domain owner's own statement (RFC 7505). Other DNS failures never suppress: a faulty resolver, or a
    domain that lapsed for a day, must not suppress a customer's whole list.
    """
    if status == "5.1.10":
        return ReplyMeaning(Category.NULL_MX, Scope.RECIPIENT)
    return ReplyMeaning(Category.DNS, Scope.SITE)


def _read(phase: Phase, code: int, status: str | None, words: str) -> tuple[ReplyMeaning, bool]:
    """Return the meaning of a reply, and whether it is clear enough to suppress an address.

    Specific words come before the status, general words after it. Two kinds of status come before all words: 5.1.2 and
    5.1.10 are about the recipient's domain unless the words name the sender, and 5.1.7, 5.1.8 and 5.7.27 are about the
    sender. Only a permanent reply with the status of a dead mailbox and general words that refuse us contradicts
    itself, as `550 5.1.1 Access denied` does: it counts as a refusal of this message, not of all mail to the site. A
    reply about a temporary state never suppresses, whatever its code.
    """
    numbered, telling = by_status(status, code), RECIPIENTS.first(words, status)
    about_sender = names_the_sender(words)
    if status is not None and status[2:] in _OF_DOMAINS and not about_sender:
        telling = telling if telling is not None and telling.category in _DEAD else numbered
    elif (refusal := REFUSALS.first(words, status)) is not None:
        return refusal, False
    elif numbered is not None and numbered.category is Category.SENDER_REFUSED:
        return numbered, False
    elif about_sender and (telling or numbered or _UNAVAILABLE).category in _NO_DOMAIN:
        return ReplyMeaning(Category.SENDER_REFUSED, Scope.MESSAGE), False
    if telling is not None:
        return telling, not is_passing(words)
    vague = HINTS.first(words, status)
    if numbered is not None:
        if vague is not None and vague.category in _REFUSES_US and numbered.category in _DEAD and code >= 500:
            return ReplyMeaning(vague.category, Scope.MESSAGE), False
        return numbered, not is_passing(words)
    if vague is not None:
        return vague, False
    return _read_code(phase, code, status, words)


def _read_code(phase: Phase, code: int, status: str | None, words: str) -> tuple[ReplyMeaning, bool]:
    """Return the meaning of a reply whose words and status have none; as `_read`.

    The reply suppresses if it says that something does not exist, or if it names a mailbox and has no word about us;
    without any words only X.1.0 and 551 suppress. 556 always does, unless the words name the sender.
    """
    found = by_vague_status(status) or by_code(phase, code) or by_phase(phase, code)
    if code == _NO_MAIL_HERE:
        return found, not names_the_sender(words)
    if is_empty(words):
        return found, (status is not None and status[2:4] == "1.") or code == _NOT_LOCAL
    return found, is_bare(words) or (names_a_mailbox_only(words) and not is_passing(words))


def _within(phase: Phase, found: ReplyMeaning, *, alone: bool) -> ReplyMeaning:
    """Limit a meaning to what a server can know at this phase."""
    if phase in _BEFORE_MAIL:
        if found.scope is Scope.SESSION:
            return found
        personal = found.scope is Scope.RECIPIENT
        return ReplyMeaning(Category.UNAVAILABLE if personal else found.category, Scope.SITE)
    if found.scope is not Scope.RECIPIENT:
        return found
    if phase is Phase.MAIL:  # the server has seen only the sender
        return ReplyMeaning(Category.SENDER_REFUSED, Scope.MESSAGE)
    if phase is not Phase.RCPT and not alone:
        return ReplyMeaning(found.category, Scope.MESSAGE)
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
    """Return the outcome of a session that ended without a reply: always deferred, because only a reply can be final.

    A connection closed in mid-transaction concerns that session. One that is never established, or a silent peer,
    concerns the site.
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
