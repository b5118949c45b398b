"""Map Postmark's searches to ours, and stored messages, bounces and suppressions to Postmark's records. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from api.areas.compat import stored
from api.areas.compat.postmark_mapping import THEIR_DEFAULT_STREAM
from api.areas.compat.read_schemas import (
    MAX_FOUND,
    PostmarkBounce,
    PostmarkEvent,
    PostmarkMessage,
    PostmarkMessageDetail,
    PostmarkPerson,
    PostmarkSuppression,
)
from api.areas.compat.stored import MessageContent
from engine.base import clock, ids
from engine.base.errors import Refusal, invalid
from engine.base.events import EventType, Status
from engine.sending.bounces.types import BounceRow, BounceType
from engine.sending.emails.defaults import DEFAULT_STREAM
from engine.sending.messages import rules
from engine.sending.messages.types import MessageRow, RecipientRow
from engine.sending.suppressions.types import Reason, SuppressionRow

EASTERN: Final = ZoneInfo("America/New_York")  # of the dates in Postmark's searches
_SECOND: Final = timedelta(seconds=1)
_WAITING: Final = frozenset({Status.SCHEDULED, Status.QUEUED})
_EVENT_TYPES: Final = {
    EventType.DELIVERED: "Delivered", EventType.DEFERRED: "Transient", EventType.BOUNCED: "Bounced",
    EventType.FAILED: "Bounced",
}  # fmt: skip
_REASONS: Final = {
    Reason.BOUNCE: "HardBounce", Reason.COMPLAINT: "SpamComplaint", Reason.MANUAL: "ManualSuppression",
    Reason.UNSUBSCRIBE: "ManualSuppression",
}  # fmt: skip


class BounceKind(Struct, frozen=True):
    """A type of Postmark's bounces (…/bounce-api#bounce-types), and how its deliveries ended."""

    code: int
    words: str
    type: BounceType


KINDS: Final = {
    "HardBounce": BounceKind(1, "Hard bounce", BounceType.BOUNCED),
    "SoftBounce": BounceKind(4096, "Soft bounce", BounceType.FAILED),
    "Blocked": BounceKind(100006, "ISP block", BounceType.BOUNCED),  # "due to content or blacklisting"
}


def checked_reach(count: int, offset: int) -> int:
    """Return how many rows a search reads; raise the 400 beyond MAX_FOUND."""
    if count + offset > MAX_FOUND:
        raise invalid(
            "offset",
            f"`count` and `offset` together are {count + offset}; the limit is {MAX_FOUND}. Narrow the time with "
            "`fromdate` and `todate`.",
        )
    return count + offset


def period(fromdate: str | None, todate: str | None) -> dict[str, str | None]:
    """Return `since` and `until`, in our form, of Postmark's inclusive dates; raise the 400 for no date."""
    since = None if fromdate is None else _moment("fromdate", fromdate)[0]
    until = None if todate is None else _moment("todate", todate)[1]
    return {"since": _iso(since), "until": _iso(until)}


def stream_of(name: str | None) -> str | None:
    """Return our name of a stream."""
    return DEFAULT_STREAM if name == THEIR_DEFAULT_STREAM else name


def their_stream(name: str | None) -> str:
    """Return Postmark's name of a stream; that of one whose message is deleted is empty."""
    return THEIR_DEFAULT_STREAM if name == DEFAULT_STREAM else name or ""


def type_of(wanted: str | None) -> str | None:
    """Return how the bounces of a type ended; raise the 400 for a type that Waybill does not tell apart."""
    if wanted is None:
        return None
    if wanted not in KINDS:
        raise invalid("type", f"`type` is {wanted[:50]!r}. Use one of {', '.join(KINDS)}.")
    return KINDS[wanted].type


def message(row: MessageRow) -> PostmarkMessage:
    """Return a message as a search lists it."""
    return PostmarkMessage(**_fields(row))


def message_detail(found: MessageContent) -> PostmarkMessageDetail:
    """Return a message with its content and events."""
    return PostmarkMessageDetail(
        **_fields(found.row),
        text_body=found.bodies.text,
        html_body=found.bodies.html,
        body="" if found.mime is None else found.mime.decode("utf-8", "replace"),
        message_events=[
            PostmarkEvent(
                str(detail.get("recipient", "")),
                _EVENT_TYPES[EventType(event.type)],
                clock.iso(event.occurred_at),
                _details(event.seq, event.type, detail),
            )
            for event, detail in found.events()
            if event.type in _EVENT_TYPES
        ],
    )


def bounce(row: BounceRow, of: MessageRow | None, suppressed: SuppressionRow | None) -> PostmarkBounce:
    """Return a bounce; `of` is its message if that is still stored, `suppressed` its address's suppression."""
    detail = stored.detail_of(row.payload)
    name = name_of(row)
    return PostmarkBounce(
        id=row.seq,
        type=name,
        type_code=KINDS[name].code,
        name=KINDS[name].words,
        tag=_first_tag(of),
        message_id="" if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        message_stream=their_stream(row.stream),
        description=f"{detail.get('class', 'unknown')} ({detail.get('scope', 'unknown')})",
        details=reply_of(detail),
        email=str(detail.get("recipient", "")),
        from_="" if of is None else of.sender,
        bounced_at=clock.iso(row.occurred_at),
        inactive=suppressed is not None,
        can_activate=suppressed is not None and suppressed.reason != Reason.COMPLAINT,
        subject="" if of is None else of.subject,
    )


def name_of(row: BounceRow) -> str:
    """Return Postmark's type of a failed delivery."""
    if row.type == BounceType.FAILED:
        return "SoftBounce"
    return "HardBounce" if stored.detail_of(row.payload).get("scope") == "recipient" else "Blocked"


def reply_of(detail: Mapping[str, Any]) -> str:
    """Return the mail server's reply in an event, or why there was none."""
    return str(detail.get("diagnostic") or detail.get("reason") or "")


def suppression(row: SuppressionRow) -> PostmarkSuppression:
    """Return a suppressed address."""
    reason = Reason(row.reason)
    return PostmarkSuppression(
        row.address,
        _REASONS[reason],
        "Customer" if reason is Reason.MANUAL else "Recipient",
        clock.iso(row.created_at),
    )


def reasons_of(wanted: str | None) -> frozenset[Reason]:
    """Return our reasons for Postmark's `SuppressionReason`, all without one; raise the 400 for an unknown one."""
    found = frozenset(ours for ours, theirs in _REASONS.items() if wanted in (None, theirs))
    if not found:
        known = ", ".join(dict.fromkeys(_REASONS.values()))
        raise invalid("SuppressionReason", f"`SuppressionReason` is {str(wanted)[:50]!r}; use one of {known}.")
    return found


def renamed(refusal: Refusal) -> Refusal:
    """Return a refusal of our filters with Postmark's names of the parameters."""
    theirs = {"to": "recipient", "stream": "messagestream", "from": "fromdate", "until": "todate"}
    field = str(refusal.fields.get("field"))
    if field not in theirs:
        return refusal
    fields: dict[str, Any] = dict(refusal.fields) | {"field": theirs[field]}
    return Refusal(refusal.kind, refusal.message.replace(f"`{field}`", f"`{theirs[field]}`"), **fields)


def _fields(row: MessageRow) -> dict[str, Any]:
    people = stored.recipients_of(row)
    return {
        "tag": _first_tag(row),
        "message_id": ids.format_id(ids.Kind.MESSAGE, row.id),
        "message_stream": their_stream(row.stream),
        **{kind: [_person(one) for one in people if one.kind == kind] for kind in ("to", "cc", "bcc")},
        "recipients": [one.address for one in people],
        "received_at": stored.made_at(row),
        "from_": row.sender,
        "subject": row.subject,
        "attachments": [one.filename for one in rules.files_of(row.attachments)],
        "status": "Queued" if Status(row.status) in _WAITING else "Sent",
        "metadata": stored.metadata_of(row),
    }


def _person(row: RecipientRow) -> PostmarkPerson:
    return PostmarkPerson(row.address, row.name)


def _first_tag(row: MessageRow | None) -> str:
    tags = [] if row is None else stored.tags_of(row)
    return tags[0] if tags else ""


def _details(seq: int, kind: str, detail: Mapping[str, Any]) -> dict[str, str]:
    if _EVENT_TYPES[EventType(kind)] == "Bounced":
        return {"Summary": reply_of(detail), "BounceID": str(seq)}
    server = {"DestinationServer": str(detail["mx"])} if "mx" in detail else {}
    return {"DeliveryMessage": reply_of(detail), **server}


def _moment(field: str, text: str) -> tuple[datetime, datetime]:
    """Return the beginning of a day or a time of Postmark's searches, and the first moment after it."""
    try:
        found = datetime.fromisoformat(text)
        begins = (found if found.tzinfo else found.replace(tzinfo=EASTERN)).astimezone(UTC)
        is_day = len(text) <= len("2026-11-20") and found.time() == time()
        # A day ends at the next midnight, which may be 23 or 25 hours away.
        after = (found + timedelta(days=1)).replace(tzinfo=EASTERN).astimezone(UTC) if is_day else begins + _SECOND
    except (ValueError, OverflowError):
        raise invalid(
            field, f"`{field}` is {text[:40]!r}; it must be a day or a time such as 2026-11-20 or 2026-11-20T08:00:00."
        ) from None
    return begins, after


def _iso(at: datetime | None) -> str | None:
    return None if at is None else clock.iso(at)
