"""`ops explain`: what happened to a message, who can act on it, and how, in one paragraph."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import click
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import SETTLED, EventType, Status
from engine.delivery.reply_codes import Category
from engine.delivery.wait_reasons import QUEUED_CLAUSES, QueuedReason
from engine.sending.suppressions.types import Reason
from engine.store.queries import Queries
from ops.commands.base import as_json, in_database, reported, show

MAX_SAID = 300  # characters of a server's reply that are quoted
OVERDUE = timedelta(minutes=2)  # a scheduled message is released within seconds of its time unless something is wrong
MAX_NAMED = 3  # recipients described one by one; the others are counted
THEIRS, RECIPIENTS, SENDERS, OURS, NOBODYS = (
    "the receiving side", "the recipient", "the sender", "this service", "nobody"
)  # fmt: skip
_SQL = Queries.beside(__file__, "explain.sql")


class ExplainedMessage(Struct, frozen=True):
    """The message to explain."""

    id: UUID
    status: str
    source: str
    sender: str
    subject: str
    scheduled_at: datetime | None
    delivered_at: datetime | None


class ExplainedRecipient(Struct, frozen=True):
    """A recipient of the message."""

    address: str
    status: str
    attempts: int
    next_attempt_at: datetime | None


class ExplainedEvent(Struct, frozen=True):
    """An event of the message's waybill."""

    type: str
    occurred_at: datetime
    payload: str


class Meaning(Struct, frozen=True):
    """Explanation of one category of outcome: what happened, who can act, and what to do.

    `over` replaces `advice` when no further attempt follows.
    """

    happened: str
    side: str
    advice: str
    over: str = ""


_MESSAGE = _SQL.rows("message_to_explain", ExplainedMessage)
_RECIPIENTS = _SQL.rows("recipients_to_explain", ExplainedRecipient)
_EVENTS = _SQL.rows("events_to_explain", ExplainedEvent)
MEANINGS: dict[Category, Meaning] = {
    Category.ACCEPTED: Meaning(
        "the receiving server took the message", NOBODYS,
        "if it is not in the inbox, look into the spam folder and ask the recipient's postmaster with the server's "
        "reply in hand",
    ),
    Category.USER_UNKNOWN: Meaning(
        "the server says that this mailbox does not exist", RECIPIENTS,
        "check the address for a typing mistake and remove it from your lists",
    ),
    Category.MAILBOX_DISABLED: Meaning(
        "the mailbox no longer exists or is disabled", RECIPIENTS,
        "reach the person in another way and remove the address from your lists",
    ),
    Category.MAILBOX_UNAVAILABLE: Meaning(
        "the server refuses this mailbox without saying why", RECIPIENTS,
        "check the address; where it is right, ask the recipient whether their mail works",
    ),
    Category.MAILBOX_FULL: Meaning(
        "the recipient's mailbox is full", RECIPIENTS,
        "ask the recipient to make room: it is tried again",
        "ask the recipient to make room, then send again: the address stays usable",
    ),
    Category.NULL_MX: Meaning(
        "the domain states that it receives no mail at all", RECIPIENTS,
        "check the part behind the @ for a typing mistake",
    ),
    Category.RELAYING: Meaning(
        "the server that DNS names for the domain does not serve it", THEIRS,
        "tell the recipient that their MX records or their mail server's list of domains are wrong",
    ),
    Category.SENDER_REFUSED: Meaning(
        "the server does not accept the sender's address or domain", SENDERS,
        "check that the sending domain has its DNS records (`ops domain verify`) and can receive mail itself",
    ),
    Category.POLICY: Meaning(
        "a policy of the receiving side forbids this mail", THEIRS,
        "ask the recipient's postmaster which policy it was; try a simpler message",
    ),
    Category.REPUTATION: Meaning(
        "the server distrusts the IP address or domain that the mail comes from", OURS,
        "look the sending IP and the domain up in the list that the reply names and follow its link to be removed",
    ),
    Category.AUTH: Meaning(
        "the server could not verify who sends: SPF, DKIM, DMARC or the reverse DNS name does not hold", SENDERS,
        "check the domain's records (`ops domain verify`) and the sending IP's reverse name (`ops doctor`)",
    ),
    Category.RATE: Meaning(
        "the server limits how much mail it takes in a given time", THEIRS,
        "wait: delivery slows down by itself; `ops site` shows and sets the pace",
        "send again later, and not so much at once; `ops site` shows and sets the pace",
    ),
    Category.GREYLISTED: Meaning(
        "the server defers first-time senders once (greylisting)", THEIRS,
        "nothing: the next try usually passes",
        "send again, and ask the recipient's postmaster why later attempts were refused too",
    ),
    Category.CONTENT: Meaning(
        "a filter took the message for spam or something harmful", SENDERS,
        "look at the links, attachments and wording, and compare with a message that passed",
    ),
    Category.SIZE: Meaning(
        "the message is larger than the server takes", SENDERS,
        "send a link in place of the attachment",
    ),
    Category.SMTPUTF8: Meaning(
        "the server can't take addresses or headers with letters beyond ASCII", THEIRS,
        "use an ASCII address of the recipient, if there is one",
    ),
    Category.PROTOCOL: Meaning(
        "the conversation broke down: a command or reply was not understood", THEIRS,
        "if it goes on, watch a conversation with `ops trace --domain` and show it to the recipient's postmaster",
    ),
    Category.SYSTEM: Meaning(
        "the receiving server has an internal problem", THEIRS,
        "nothing: it is tried again; after some hours tell the recipient's postmaster",
        "tell the recipient's postmaster what the server said, and send again once it is fixed",
    ),
    Category.UNAVAILABLE: Meaning(
        "the receiving server does not take mail at present", THEIRS,
        "nothing: it is tried again; after some hours tell the recipient by other means",
        "tell the recipient by other means, and send again once their server takes mail",
    ),
    Category.NETWORK: Meaning(
        "no connection to the receiving server could be made", THEIRS,
        "nothing, unless other domains fail too: then look at this host's own network (`ops doctor`)",
        "tell the recipient by other means, and send again once their server answers; where other domains fail too, "
        "look at this host's own network (`ops doctor`)",
    ),
    Category.DNS: Meaning(
        "DNS names no usable mail server for the domain", RECIPIENTS,
        "check the part behind the @; where it is right, tell the domain's owner, and look at our resolvers if many "
        "domains are affected",
    ),
    Category.TLS: Meaning(
        "the connection could not be secured as the domain's policy or this message asks", THEIRS,
        "tell the recipient's postmaster what the certificate lacks; a message with `minTls` of `none` goes without",
    ),
    Category.UNKNOWN_AFTER_DOT: Meaning(
        "the connection broke after the whole message was sent, so it may have been delivered or not", THEIRS,
        "nothing: it is tried again, and the recipient may get it twice",
        "ask the recipient whether they have it, and send again if not",
    ),
    Category.LOCAL: Meaning(
        "this service could not make the delivery because of an internal problem", OURS,
        "nothing: it is tried again; if it repeats, read the log of the mta",
        "ask the operator of this service to look into it, then send again",
    ),
    Category.UNSIGNED: Meaning(
        "the sending domain was removed from the account, so the message could not be signed", SENDERS,
        "add the domain again and have it verified, then send again",
    ),
    Category.OPERATOR: Meaning(
        "the operator of this service ended the delivery", OURS,
        "ask the operator for the reason, then send again",
    ),
    Category.EXPIRED: Meaning(
        "the `deliverBy` of the message passed while it waited", SENDERS,
        "send again with a later `deliverBy`; the `queued` events name what it waited for",
    ),
}  # fmt: skip
_Details = Sequence[tuple[str, datetime, dict[str, Any]]]
_REFUSED_LATE = {
    "domain_not_verified": "the sending domain was no longer verified. The sender can act: correct its DNS "
    "records (`ops domain verify`) and send again",
    "daily_limit_reached": "the account's daily limit was used up. The sender can act: send again after midnight UTC",
    "monthly_limit_reached": "the account's monthly limit was used up. The sender can act: send again "
    "after the 1st, or with a larger plan",
    "platform_paused": "this service had reached its own daily limit. The operator can act; send again "
    "after midnight UTC",
    "deliver_by_passed": "its `deliverBy` had passed. The sender can act: send again with a later `deliverBy`",
}


@click.command()
@click.argument("message", metavar="MESSAGE_ID", help="Id of the message (msg_…).")
@as_json
@reported
def explain(*, message: str, as_json: bool) -> None:
    """Explain what happened to a message, who can act on it, and how."""
    found = in_database(explanation, message)
    if as_json:
        show(found, as_json=True)
    else:
        click.echo(found["explanation"])


async def explanation(pool: asyncpg.Pool, message: str) -> dict[str, Any]:
    """Return id, status and explanation of a message (`msg_…`); raises WrongId, or Refusal (404) if it is unknown."""
    found = ids.parse_id(ids.Kind.MESSAGE, message)
    row = await _MESSAGE.first(pool, found)
    if row is None:
        raise not_found("message")
    recipients = await _RECIPIENTS.fetch(pool, found)
    events = await _EVENTS.fetch(pool, found)
    return {"id": message, "status": row.status, "explanation": paragraph(row, recipients, events, clock.now())}


def paragraph(
    message: ExplainedMessage, recipients: Sequence[ExplainedRecipient], events: Sequence[ExplainedEvent], at: datetime
) -> str:
    """Return the explanation as one paragraph, as of `at`. Pure."""
    details = [(event.type, event.occurred_at, json.loads(event.payload)["detail"]) for event in events]
    subject = f" “{message.subject}”" if message.subject else ""
    sentences = [f"The message{subject} from {message.sender} {_came_in(details)}."]
    before_delivery = _before_delivery(message, details, at)
    if before_delivery is not None:
        return " ".join([*sentences, before_delivery])
    shown = sorted(recipients, key=lambda one: one.status == Status.DELIVERED.value)[:MAX_NAMED]
    sentences += [_recipient(one, details) for one in shown]
    if len(recipients) > len(shown):
        rest = len(recipients) - len(shown)
        sentences.append(f"{rest} more recipient{'s' if rest > 1 else ''}: see `ops message {_id(message)}`.")
    return " ".join(sentences)


def _came_in(details: _Details) -> str:
    for kind, at, detail in details:
        if kind == EventType.ACCEPTED.value and not detail.get("scheduled"):
            channel = {"smtp": " over SMTP", "api": " through the API"}.get(str(detail.get("source")), "")
            return f"was accepted{channel} at {clock.iso(at)}"
        if kind == EventType.SCHEDULED.value:
            times = [one.get("scheduled_at") for name, _, one in details if name == kind]  # it may have been moved
            return f"was scheduled at {clock.iso(at)} for {times[-1]}"
    return "is known, but its first events are past their retention"


def _before_delivery(message: ExplainedMessage, details: _Details, at: datetime) -> str | None:
    """Explain a message that is still scheduled, was canceled, or failed at its release; None if it was released."""
    match message.status:
        case Status.SCHEDULED.value if message.scheduled_at is not None and at > message.scheduled_at + OVERDUE:
            return (
                "That time has passed and it was not released: the daily or monthly limit of the account, or the daily "
                "limit of this service, is used up (`GET /v1/me` shows it), or the worker is behind (`ops doctor`)."
            )
        case Status.SCHEDULED.value:
            return "It waits for that time; nothing is wrong, and there is nothing to do."
        case Status.CANCELED.value:
            return "It was canceled before that time, as its sender asked; nothing was sent."
    for kind, _, detail in reversed(details):
        if kind == EventType.SCHEDULE_FAILED.value:
            return f"At its release it was refused ({detail.get('reason')}): {_at_release(detail)}."
        if kind == EventType.SUPPRESSED.value and detail.get("phase") == "scheduled_release":
            return (
                f"At its release it was refused and sent to no recipient: {detail.get('address')} is on the sender's "
                f"suppression list ({detail.get('reason')}). Send again without that address; "
                f"{_advice_on_listed(detail)}."
            )
    return None


def _at_release(detail: dict[str, Any]) -> str:
    """Explain why a scheduled message was refused at its release, who can act, and how."""
    reason = str(detail.get("reason"))
    known = _REFUSED_LATE.get(reason)
    if known is None and reason.startswith("account_"):
        known = "the account was not active then. The sender can act: ask the operator why"
    return known or "the sender can act: fix the cause and send again"


def _recipient(one: ExplainedRecipient, details: _Details) -> str:
    own = [(kind, at, detail) for kind, at, detail in details if detail.get("recipient") == one.address]
    if own and own[-1][2].get("simulated"):
        return _simulated(one, own, details)
    if one.status == Status.COMPLAINED.value:
        return (
            f"{one.address} received it and reported it as spam, so the address gets no more mail. The sender can act: "
            "check how the address came onto your list."
        )
    if not own:
        return _not_tried(one, details)
    kind, at, detail = own[-1]
    if kind == EventType.SUPPRESSED.value:
        return (
            f"{one.address} was not tried: the address is on the sender's suppression list ({detail.get('reason')}); "
            f"{_advice_on_listed(detail)}."
        )
    meaning = MEANINGS.get(_category(detail), MEANINGS[Category.PROTOCOL])
    verdict = _late(own) if detail.get("late") else _verdict(kind, at, detail, one)
    parts = [f"For {one.address}, {verdict}: {meaning.happened}.", _said(detail)]
    if kind != EventType.DELIVERED.value:
        parts += [_waiting(one, details), f"This lies with {_side(meaning, detail)}.", _others(detail)]
    is_over = kind in (EventType.BOUNCED.value, EventType.FAILED.value, EventType.REJECTED.value)
    parts.append(f"What to do: {meaning.over if is_over and meaning.over else meaning.advice}.")
    if detail.get("suppressed") is True:
        parts.append("The address is now on the suppression list and gets no more mail.")
    return " ".join(part for part in parts if part)


def _advice_on_listed(detail: dict[str, Any]) -> str:
    """Return what to do about a recipient on the suppression list."""
    if detail.get("reason") == Reason.UNSUBSCRIBE.value:
        return (
            "this person unsubscribed, and gets mail of the stream `transactional` only. Nothing is wrong; remove the "
            "address from the list only if that person asks for it"
        )
    return "remove it from the list if that is wrong"


def _simulated(one: ExplainedRecipient, own: _Details, details: _Details) -> str:
    """Explain a simulator recipient; nobody has to act."""
    kind, at, detail = own[-1]
    if kind == EventType.COMPLAINED.value:
        verdict = f"a complaint came at {clock.iso(at)}, after the delivery"
    else:
        verdict = _verdict(kind, at, detail, one)
    parts = [f"For {one.address}, {verdict}.", _said(detail), _waiting(one, details)]
    parts.append(
        "It is a simulator recipient; its name selects the result. Nothing is wrong, and no address is suppressed."
    )
    return " ".join(part for part in parts if part)


def _not_tried(one: ExplainedRecipient, details: _Details) -> str:
    if Status(one.status) in SETTLED:
        return f"{one.address} ended as {one.status}; the events with the reason are past their retention."
    waits = _waiting(one, details)
    if waits:
        return f"{one.address} has not been tried yet. {waits}"
    return f"{one.address} has not been tried yet; it is next in the queue, and there is nothing to do but wait."


def _verdict(kind: str, at: datetime, detail: dict[str, Any], one: ExplainedRecipient) -> str:
    tries = f"try {detail['attempt']}" if "attempt" in detail else "the delivery"
    mx = f" with {detail['mx']}" if detail.get("mx") else ""
    match kind:
        case EventType.DELIVERED.value:
            tls = detail.get("tls")
            how = f" over {tls['version']}" if isinstance(tls, dict) and tls.get("version") else ""
            return f"{tries}{mx} succeeded at {clock.iso(at)}{how}"
        case EventType.BOUNCED.value:
            return f"{tries}{mx} was refused for good at {clock.iso(at)}"
        case EventType.DEFERRED.value:
            again = f", the next is at {clock.iso(one.next_attempt_at)}" if one.next_attempt_at else ""
            return f"{tries}{mx} was put off at {clock.iso(at)}{again}"
        case EventType.REJECTED.value:
            return f"the delivery ended without an attempt at {clock.iso(at)}"
    return f"{tries}{mx} {'was the last: it failed' if 'attempt' in detail else 'ended'} at {clock.iso(at)}"


def _late(own: _Details) -> str:
    """Describe a delivery whose bounce or delay notice came by mail, after the server had accepted the message."""
    kind, at, detail = own[-1]
    reporter = f" from {detail['reporting_mta']}" if detail.get("reporting_mta") else ""
    taken = next((when for name, when, _ in reversed(own) if name == EventType.DELIVERED.value), None)
    accepted = "the delivery succeeded" + (f" at {clock.iso(taken)}" if taken else "")
    if kind == EventType.BOUNCED.value:
        return f"{accepted}, but a bounce{reporter} came by mail at {clock.iso(at)}"
    return f"{accepted}, and a notice{reporter} of {clock.iso(at)} says that the mail is delayed on its further way"


def _said(detail: dict[str, Any]) -> str:
    words = str(detail.get("diagnostic") or "")[:MAX_SAID]
    return f"The reply was: “{words}”." if words else ""


def _side(meaning: Meaning, detail: dict[str, Any]) -> str:
    """Return who can act; a problem of a whole site is never the recipient's."""
    if meaning.side == RECIPIENTS and detail.get("scope") == "site":
        return THEIRS
    return meaning.side


def _waiting(one: ExplainedRecipient, details: _Details) -> str:
    """Explain why a pending recipient waits: from the last `queued` event, unless an attempt followed it."""
    if Status(one.status) in SETTLED:
        return ""
    for kind, _, detail in reversed(details):
        if not _concerns(one, detail):
            continue
        if kind in (EventType.ATTEMPTED.value, EventType.DEFERRED.value):
            return ""
        if kind == EventType.QUEUED.value:
            note = f": {detail['note']}" if detail.get("note") else ""
            until = f" until {detail['until']} at the earliest" if detail.get("until") else ""
            return f"It waits{until} ({_why(detail.get('reason'))}{note})."
    return ""


def _why(reason: object) -> object:
    """Return why a delivery waits, in words; a reason of another version stays as it is."""
    try:
        return QUEUED_CLAUSES[QueuedReason(str(reason))]
    except ValueError:
        return reason


def _concerns(one: ExplainedRecipient, detail: dict[str, Any]) -> bool:
    """Return True if an event is about this recipient, by address or by recipient domain."""
    if "recipient" in detail:
        return bool(detail["recipient"] == one.address)
    return detail.get("to_domain") in (None, one.address.rpartition("@")[2])


def _others(detail: dict[str, Any]) -> str:
    """Compare with recent deliveries of other accounts to the same servers."""
    lately = detail.get("site_lately")
    if not isinstance(lately, dict):
        return ""
    delivered, deferred, bounced = (int(lately.get(name, 0)) for name in ("delivered", "deferred", "bounced"))
    total = delivered + deferred + bounced
    if not total:
        return ""
    comparison = (
        f"In the {lately.get('minutes')} minutes before, the same servers took {delivered} of {total} deliveries of "
        "other accounts"
    )
    if delivered >= 0.9 * total:
        return f"{comparison}: the cause is more likely this mail than the servers."
    if delivered <= 0.5 * total:
        return f"{comparison}: the cause is more likely the servers than this mail."
    return f"{comparison}."


def _category(detail: dict[str, Any]) -> Category:
    try:
        return Category(str(detail.get("class")))
    except ValueError:
        return Category.PROTOCOL


def _id(message: ExplainedMessage) -> str:
    return ids.format_id(ids.Kind.MESSAGE, message.id)
