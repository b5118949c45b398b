"""`ops explain`: what happened to a message, who can act on it, and how, in one paragraph."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import click
import msgspec
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import SETTLED, EventType, Status
from engine.base.settings import Settings
from engine.base.trace_context import trace_of
from engine.delivery.reply_codes import Category
from engine.delivery.wait_reasons import QUEUED_CLAUSES, QueuedReason
from engine.delivery.waits import in_words
from engine.sending.messages.waits import waits_in
from engine.sending.suppressions.types import Reason
from engine.store.queries import Queries
from ops.commands.base import as_json, in_service, reported, show

MAX_SAID = 300  # characters of a server's reply that are quoted
OVERDUE = timedelta(minutes=2)  # a scheduled message is released within seconds of its time unless something is wrong
MAX_NAMED = 3  # recipients described one by one; the others are counted
THEIRS, RECIPIENTS = "the receiving side", "the recipient"  # sides of explain.toml
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
    traceparent: str | None = None


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


class ExplainTexts(Struct, frozen=True):
    """The explanations in `explain.toml`."""

    meanings: dict[Category, Meaning]
    refused_at_release: dict[str, str]


_TEXTS = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=ExplainTexts)
MEANINGS = _TEXTS.meanings
_Details = Sequence[tuple[str, datetime, dict[str, Any]]]


@click.command()
@click.argument("message", metavar="MESSAGE_ID", help="Id of the message (msg_…).")
@as_json
@reported
def explain(*, message: str, as_json: bool) -> None:
    """Explain what happened to a message, who can act on it, and how."""
    found = in_service(_explained, message)
    if as_json:
        show(found, as_json=True)
    else:
        click.echo(found["explanation"])
        if "trace" in found:
            click.echo(f"Trace: {found['trace']}")


async def _explained(pool: asyncpg.Pool, settings: Settings, message: str) -> dict[str, Any]:
    """Return the explanation with the link to the trace, if the operator has told its form."""
    found = await explanation(pool, message)
    if settings.trace_url is not None and "trace" in found:
        found["trace"] = settings.trace_url.replace("{trace_id}", found["trace"])
    return found


async def explanation(pool: asyncpg.Pool, message: str) -> dict[str, Any]:
    """Return id, status and explanation of a message (`msg_…`), and the id of its trace if it has one.

    Raises WrongId, or Refusal (404) if it is unknown.
    """
    found = ids.parse_id(ids.Kind.MESSAGE, message)
    row = await _MESSAGE.first(pool, found)
    if row is None:
        raise not_found("message")
    recipients = await _RECIPIENTS.fetch(pool, found)
    events = await _EVENTS.fetch(pool, found)
    told = paragraph(row, recipients, events, clock.now())
    trace = {} if row.traceparent is None else {"trace": trace_of(row.traceparent)}
    return {"id": message, "status": row.status, "explanation": told} | trace


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
    known = _TEXTS.refused_at_release.get(reason)
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
    parts = [f"For {one.address}, {verdict}: {meaning.happened}.", _said(detail), _took(one, details)]
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
            return f"{tries}{mx} was rejected permanently at {clock.iso(at)}"
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


def _took(one: ExplainedRecipient, details: _Details) -> str:
    """Return where the time of the last attempt went."""
    for _, _, detail in reversed(details):
        waits = waits_in(detail) if _concerns(one, detail) else None
        if waits is not None:
            return in_words(waits)
    return ""


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
