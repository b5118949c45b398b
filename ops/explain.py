"""`ops explain`: one message's fate in plain words: what happened, whose side it is on, and what to do."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import SETTLED, EventType, Status
from engine.delivery.reply_codes import Category
from engine.store.queries import Queries

MAX_SAID = 300  # characters of a server's own words
OVERDUE = timedelta(minutes=2)  # a scheduled message is let go within seconds, unless something keeps it
MAX_NAMED = 3  # recipients told of one by one; the rest is counted

THEIRS, RECIPIENTS, SENDERS, OURS, NOBODYS = (
    "the receiving side", "the recipient", "the sender", "this service", "nobody"
)  # fmt: skip

_SQL = Queries.beside(__file__, "explain.sql")


class ExplainedMessage(Struct, frozen=True):
    """The message."""

    id: UUID
    status: str
    source: str
    sender: str
    subject: str
    scheduled_at: datetime | None
    delivered_at: datetime | None


class ExplainedRecipient(Struct, frozen=True):
    """One of its recipients."""

    address: str
    status: str
    attempts: int
    next_attempt_at: datetime | None


class ExplainedEvent(Struct, frozen=True):
    """One event of its waybill."""

    type: str
    occurred_at: datetime
    payload: str


class Meaning(Struct, frozen=True):
    """What a class of outcome means: what happened, whose matter it is, what to do about it; `over` is what to do
    instead once no other try follows."""

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
        "the mailbox exists no more or is switched off", RECIPIENTS,
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
        "a rule of the receiving side forbids this mail", THEIRS,
        "ask the recipient's postmaster which rule it was; try a message with less in it",
    ),
    Category.REPUTATION: Meaning(
        "the server distrusts the address or domain that the mail comes from", OURS,
        "look the sending IP and the domain up in the list that the reply names and follow its link to be removed",
    ),
    Category.AUTH: Meaning(
        "the server could not verify who sends: SPF, DKIM, DMARC or the reverse DNS name does not hold", SENDERS,
        "check the domain's records (`ops domain verify`) and the sending IP's reverse name (`ops doctor`)",
    ),
    Category.RATE: Meaning(
        "the server takes only so much mail in a given time", THEIRS,
        "wait: delivery slows down by itself; `ops site` shows and sets the pace",
        "send again later, and not so much at once; `ops site` shows and sets the pace",
    ),
    Category.GREYLISTED: Meaning(
        "the server turns first-time senders away once, to see whether they come back", THEIRS,
        "nothing: the next try usually passes",
        "send again, and ask the recipient's postmaster why your mail was not let in when it came back",
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
        "the receiving server has a trouble of its own", THEIRS,
        "nothing: it is tried again; after some hours tell the recipient's postmaster",
        "tell the recipient's postmaster what the server said, and send again once it is mended",
    ),
    Category.UNAVAILABLE: Meaning(
        "the receiving server does not take mail at present", THEIRS,
        "nothing: it is tried again; after some hours tell the recipient by other means",
        "tell the recipient by other means, and send again once their server takes mail",
    ),
    Category.NETWORK: Meaning(
        "no working connection to the receiving server came about", THEIRS,
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
        "the connection broke after the whole message was written, so nobody knows whether they have it", THEIRS,
        "nothing: it is tried again, and the recipient may get it twice",
        "ask the recipient whether they have it, and send again if not",
    ),
    Category.LOCAL: Meaning(
        "this service could not make the delivery, for a reason of its own", OURS,
        "nothing: it is tried again; if it repeats, read the log of the mta",
        "ask whoever runs this service to look into it, then send again",
    ),
    Category.UNSIGNED: Meaning(
        "the sending domain was taken off the account, so nothing was left to sign the message with", SENDERS,
        "add the domain again and have it verified, then send again",
    ),
    Category.OPERATOR: Meaning(
        "whoever runs this service gave the delivery up", OURS,
        "ask the operator; where their reason no longer holds, send again",
    ),
}  # fmt: skip


async def explain(pool: asyncpg.Pool, message: str) -> dict[str, Any]:
    """What became of `msg_…`: its id, status, and one paragraph. Raises WrongId, or 404 for an unknown one."""
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
    """The story in one paragraph, as it stands at a moment. Pure."""
    details = [(event.type, event.occurred_at, json.loads(event.payload)["detail"]) for event in events]
    subject = f" “{message.subject}”" if message.subject else ""
    sentences = [f"The message{subject} from {message.sender} {_came_in(details)}."]
    whole = _of_the_whole(message, details, at)
    if whole is not None:
        return " ".join([*sentences, whole])
    shown = sorted(recipients, key=lambda one: one.status == Status.DELIVERED.value)[:MAX_NAMED]
    sentences += [_recipient(one, details) for one in shown]
    if len(recipients) > len(shown):
        rest = len(recipients) - len(shown)
        sentences.append(f"{rest} more recipient{'s' if rest > 1 else ''}: see `ops message {_id(message)}`.")
    return " ".join(sentences)


_Details = Sequence[tuple[str, datetime, dict[str, Any]]]


def _came_in(details: _Details) -> str:
    for kind, at, detail in details:
        if kind == EventType.ACCEPTED.value and not detail.get("scheduled"):
            door = {"smtp": " over SMTP", "api": " through the API"}.get(str(detail.get("source")), "")
            return f"was accepted{door} at {clock.iso(at)}"
        if kind == EventType.SCHEDULED.value:
            times = [one.get("scheduled_at") for name, _, one in details if name == kind]  # it may have been moved
            return f"was scheduled at {clock.iso(at)} for {times[-1]}"
    return "is on record, though its first events are past their keeping"


def _of_the_whole(message: ExplainedMessage, details: _Details, at: datetime) -> str | None:
    """What happened to the message as such, before any recipient had a fate of their own."""
    match message.status:
        case Status.SCHEDULED.value if message.scheduled_at is not None and at > message.scheduled_at + OVERDUE:
            return (
                "That time has come, and it has not been let go: the allowance of the account for the day or month, or "
                "that of this service, is used up and waited for (`GET /v1/me` shows it), or the worker is behind "
                "(`ops doctor`)."
            )
        case Status.SCHEDULED.value:
            return "It waits for that time; nothing is wrong, and there is nothing to do."
        case Status.CANCELED.value:
            return "It was canceled before that time, as its sender asked; nothing was sent."
    for kind, _, detail in reversed(details):
        if kind == EventType.SCHEDULE_FAILED.value:
            return f"When its time came it was refused ({detail.get('reason')}): {_at_release(detail)}."
        if kind == EventType.SUPPRESSED.value and detail.get("phase") == "scheduled_release":
            return (
                f"When its time came it was refused, and nobody got it: {detail.get('address')} is on the suppression "
                f"list ({detail.get('reason')}), the sender's own. Send again without that address, or lift it there "
                "if that is wrong."
            )
    return None


def _at_release(detail: dict[str, Any]) -> str:
    """Why a scheduled message was not let go, whose matter that is, and what to do."""
    reason = str(detail.get("reason"))
    known = _REFUSED_LATE.get(reason)
    if known is None and reason.startswith("account_"):
        known = "the account was not active by then; that is the sender's matter: ask the operator why"
    return known or "that is the sender's matter: mend it and send again"


_REFUSED_LATE = {
    "domain_not_verified": "the sending domain was not verified any more; that is the sender's matter: mend its DNS "
    "records (`ops domain verify`) and send again",
    "daily_limit_reached": "the account's mail for the day was used up; that is the sender's matter: send again after "
    "midnight UTC",
    "monthly_limit_reached": "the account's mail for the month was used up; that is the sender's matter: send again "
    "after the 1st, or with a larger plan",
    "platform_paused": "this service had sent as much as it may in a day; that lies with this service: send again "
    "after midnight UTC",
    "deliver_by_passed": "the time by which it was to be delivered had passed; that is the sender's matter: send again "
    "with a later `deliverBy`",
}


def _recipient(one: ExplainedRecipient, details: _Details) -> str:
    own = [(kind, at, detail) for kind, at, detail in details if detail.get("recipient") == one.address]
    if own and own[-1][2].get("simulated"):
        return _simulated(one, own, details)
    if one.status == Status.COMPLAINED.value:
        return (
            f"{one.address} got it and reported it as spam: nothing more goes to them. It is the sender's matter: "
            "look at how the address came onto your list."
        )
    if not own:
        return _not_tried(one, details)
    kind, at, detail = own[-1]
    if kind == EventType.SUPPRESSED.value:
        return (
            f"{one.address} was not tried: the address is on the suppression list ({detail.get('reason')}), the "
            "sender's own; lift it there if that is wrong."
        )
    meaning = MEANINGS.get(_category(detail), MEANINGS[Category.PROTOCOL])
    parts = [f"For {one.address}, {_verdict(kind, at, detail, one)}: {meaning.happened}.", _said(detail)]
    if kind != EventType.DELIVERED.value:
        parts += [_waiting(one, details), f"This lies with {_side(meaning, detail)}.", _others(detail)]
    is_over = kind in (EventType.BOUNCED.value, EventType.FAILED.value)
    parts.append(f"What to do: {meaning.over if is_over and meaning.over else meaning.advice}.")
    if detail.get("suppressed") is True:
        parts.append("The address is suppressed now, so that no further mail is wasted on it.")
    return " ".join(part for part in parts if part)


def _simulated(one: ExplainedRecipient, own: _Details, details: _Details) -> str:
    """What its name says has become of it; nothing of it is anybody's matter."""
    kind, at, detail = own[-1]
    if kind == EventType.COMPLAINED.value:
        verdict = f"a complaint came at {clock.iso(at)}, after the delivery"
    else:
        verdict = _verdict(kind, at, detail, one)
    parts = [f"For {one.address}, {verdict}.", _said(detail), _waiting(one, details)]
    parts.append("It is a simulator's, which does as it is called: nothing is wrong, and nobody is suppressed.")
    return " ".join(part for part in parts if part)


def _not_tried(one: ExplainedRecipient, details: _Details) -> str:
    if Status(one.status) in SETTLED:
        return f"{one.address} ended as {one.status}; the events that say why are past their keeping."
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
    return f"{tries}{mx} {'was the last: it failed' if 'attempt' in detail else 'ended'} at {clock.iso(at)}"


def _said(detail: dict[str, Any]) -> str:
    words = str(detail.get("diagnostic") or "")[:MAX_SAID]
    return f"The words were: “{words}”." if words else ""


def _side(meaning: Meaning, detail: dict[str, Any]) -> str:
    """A trouble of the whole site can't be one recipient's."""
    if meaning.side == RECIPIENTS and detail.get("scope") == "site":
        return THEIRS
    return meaning.side


def _waiting(one: ExplainedRecipient, details: _Details) -> str:
    """Why an unsettled recipient waits beyond a retry: the last `queued` event, unless something came after it."""
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
            return f"It waits{until} ({_REASONS.get(str(detail.get('reason')), detail.get('reason'))}{note})."
    return ""


def _concerns(one: ExplainedRecipient, detail: dict[str, Any]) -> bool:
    """Whether an event is about a recipient: by their address, or by the domain that it names in their place."""
    if "recipient" in detail:
        return bool(detail["recipient"] == one.address)
    return detail.get("to_domain") in (None, one.address.rpartition("@")[2])


_REASONS = {
    "operator_hold": "the operator of this service holds it back",
    "operator_release": "the operator has let it go",
    "operator_flush": "the operator asked for an early try",
    "warm_up": "the source addresses are new to the receiving provider, and their allowance for today is used up",
    "source_refused": "the receiving servers refuse one of our addresses, so another one takes over",
    "site_window": "the receiving servers are busy with other mail of ours",
    "site_opening": "a connection to the receiving servers is being opened, and they have not greeted yet",
    "lookup_slot": "much mail waits for domains whose name servers do not answer, so it waits to be looked up",
    "connection_slot": "much mail waits for servers that have not answered, so it waits for its turn to try them",
    "site_rate": "the pace that is set for the receiving servers lets no more through for now",
    "site_paused": "the receiving servers asked us to slow down, so they are left alone for a while",
}


def _others(detail: dict[str, Any]) -> str:
    """Is it me or them? What the same servers told other accounts of late."""
    lately = detail.get("site_lately")
    if not isinstance(lately, dict):
        return ""
    delivered, deferred, bounced = (int(lately.get(name, 0)) for name in ("delivered", "deferred", "bounced"))
    total = delivered + deferred + bounced
    if not total:
        return ""
    told = (
        f"In the {lately.get('minutes')} minutes before, the same servers took {delivered} of {total} deliveries of "
        "other accounts"
    )
    if delivered >= 0.9 * total:
        return f"{told}: it is more likely about this mail than about them."
    if delivered <= 0.5 * total:
        return f"{told}: it is more likely about them than about this mail."
    return f"{told}."


def _category(detail: dict[str, Any]) -> Category:
    try:
        return Category(str(detail.get("class")))
    except ValueError:
        return Category.PROTOCOL


def _id(message: ExplainedMessage) -> str:
    return ids.format_id(ids.Kind.MESSAGE, message.id)
