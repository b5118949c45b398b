"""Which break a finding is, and how the parameters of the audit are read. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from engine.areas.audit.types import ChainBreak, CheckedPage, ExportRow, Range
from engine.base import clock, ids
from engine.base.errors import invalid

# How far the order of the log and the order of the clock may differ: an outcome is sealed when it can be stored, which
# is later than it happened, and hosts' clocks differ.
DISORDER: Final = timedelta(days=1)

_MISSING: Final = "The event is missing: its neighbours or the head of the log show that it was there."
_TWICE: Final = "Two events stand at this place."
_CHANGED: Final = (
    "The event is not as it was sealed: its hash does not follow from its content and the event before it, or its "
    "columns contradict its text."
)
_HEAD: Final = "This is not the last event that the head of the log names."
_STRAY: Final = "An event stands outside the log."


def unsound(seq: int, before: int) -> ChainBreak:
    """The break at an event that is not sound behind the place `before`."""
    if seq > before + 1:
        return missing(before + 1)
    return ChainBreak(seq, _TWICE) if seq == before else changed(seq)


def changed(seq: int) -> ChainBreak:
    """The event at this place is not the one that was sealed."""
    return ChainBreak(seq, _CHANGED)


def missing(seq: int) -> ChainBreak:
    """There is no event at this place."""
    return ChainBreak(seq, _MISSING)


def misnamed(page: CheckedPage) -> ChainBreak | None:
    """The first event of a page whose column names another message than its text."""
    for message, told, place in zip(page.messages, page.told, page.places, strict=True):
        if told != ids.format_id(ids.Kind.MESSAGE, message):
            return changed(place)
    return None


def is_misnamed(row: ExportRow) -> bool:
    """The same for one event, whose text names some message where its column does."""
    return row.message_id is not None and row.payload.split('"', 8)[7] != ids.format_id(
        ids.Kind.MESSAGE, row.message_id
    )


def earliest(*breaks: ChainBreak | None) -> ChainBreak | None:
    """The break at the lowest place."""
    return min((one for one in breaks if one is not None), key=lambda one: one.at, default=None)


def end_of(head_seq: int, head_hash: bytes, last_seq: int, last_hash: bytes | None) -> ChainBreak | None:
    """What is wrong where the events end."""
    if last_seq < head_seq:
        return missing(last_seq + 1)
    return ChainBreak(head_seq, _HEAD) if last_seq == head_seq and last_hash != head_hash else None


def stray(place: int | None) -> ChainBreak | None:
    """An event before the first place or behind the last."""
    return None if place is None else ChainBreak(place, _STRAY)


def time_range(since: str | None, until: str | None) -> Range:
    """The moments of a request; raises the 400 that names the parameter at fault."""
    return Range(_moment("from", since), _moment("until", until))


def earlier(at: datetime) -> datetime:
    """A moment before which nothing that happened at `at` can have been sealed."""
    return at - DISORDER if at > datetime.min.replace(tzinfo=UTC) + DISORDER else at


def later(at: datetime) -> datetime:
    """A moment after which everything that happened before `at` has been sealed."""
    return at + DISORDER if at < datetime.max.replace(tzinfo=UTC) - DISORDER else at


def previous_hashes(rows: dict[int, bytes], purged_through: int, purged_hash: bytes) -> dict[int, bytes]:
    """The hash before each place, from hashes by place and from what retention left."""
    return {seq + 1: digest for seq, digest in rows.items()} | {purged_through + 1: purged_hash}


def checked_type(text: str | None) -> str | None:
    """An event type to look for; any text will do, but Postgres takes no NUL."""
    if text is not None and "\0" in text:
        raise invalid("type", "`type` must not hold NUL.")
    return text


def log_name(account: UUID) -> str:
    """The file name of an export."""
    return f"audit-{ids.format_id(ids.Kind.ACCOUNT, account)}.ndjson"


def _moment(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    refusal = invalid(name, f"`{name}` must be a UTC time such as 2026-11-20T08:09:10Z.")
    if not text.endswith("Z"):
        raise refusal
    try:
        return clock.parse_iso(text)
    except ValueError:
        raise refusal from None
