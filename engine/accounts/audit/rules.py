"""Describe breaks of the log's hash chain and parse parameters of audit requests. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

import orjson

from engine.accounts.audit.types import ChainBreak, CheckedPage, ExportRow, NamedRow, Range
from engine.base import clock, ids
from engine.base.errors import invalid

# Max. difference between log order and time order: outcomes are stored later than they occur, and host clocks differ.
DISORDER: Final = timedelta(days=1)

_MISSING: Final = "The event is missing: its neighbours or the head of the log refer to it."
_TWICE: Final = "Two events have this number."
_CHANGED: Final = (
    "The event was changed: its hash does not match its content and the event before it, or its "
    "columns contradict its payload."
)
_HEAD: Final = "The hash of the last event differs from the one in the head of the log."
_UNNAMED: Final = "The event has no payload, and no `erasure.completed` event names it."
_STRAY: Final = "The event is outside the range of the log."


def unsound(seq: int, before: int) -> ChainBreak:
    """Return the break at an invalid event that follows event number `before`."""
    if seq > before + 1:
        return missing(before + 1)
    return ChainBreak(seq, _TWICE) if seq == before else changed(seq)


def changed(seq: int) -> ChainBreak:
    """Return the break for an event whose content was changed."""
    return ChainBreak(seq, _CHANGED)


def missing(seq: int) -> ChainBreak:
    """Return the break for a missing event."""
    return ChainBreak(seq, _MISSING)


def misnamed(page: CheckedPage) -> ChainBreak | None:
    """Return the break at the first event of a page whose column and payload name different messages."""
    for message, named, place in zip(page.messages, page.payload_messages, page.places, strict=True):
        if named != ids.format_id(ids.Kind.MESSAGE, message):
            return changed(place)
    return None


def is_misnamed(row: ExportRow) -> bool:
    """Return True if column and payload of the event name different messages."""
    if row.message_id is None or row.payload is None:
        return False
    return row.payload.split('"', 8)[7] != ids.format_id(ids.Kind.MESSAGE, row.message_id)


def named(rows: Iterable[NamedRow]) -> set[int]:
    """Return the numbers of the events that erasures name."""
    found: set[int] = set()
    for row in rows:
        for first, last in orjson.loads(row.entries or "[]"):
            found.update(range(first, last + 1))
    return found


def unnamed(seq: int | None) -> ChainBreak | None:
    """Return the break at an event without payload that no erasure names."""
    return None if seq is None else ChainBreak(seq, _UNNAMED)


def earliest(*breaks: ChainBreak | None) -> ChainBreak | None:
    """Return the break with the lowest event number."""
    return min((one for one in breaks if one is not None), key=lambda one: one.at, default=None)


def end_of(head_seq: int, head_hash: bytes, last_seq: int, last_hash: bytes | None) -> ChainBreak | None:
    """Return the break at the end of the log, comparing the head with the last event."""
    if last_seq < head_seq:
        return missing(last_seq + 1)
    return ChainBreak(head_seq, _HEAD) if last_seq == head_seq and last_hash != head_hash else None


def stray(place: int | None) -> ChainBreak | None:
    """Return the break for an event before the first or after the last number."""
    return None if place is None else ChainBreak(place, _STRAY)


def time_range(since: str | None, until: str | None) -> Range:
    """Return the time range of a request; raise the 400 that names the invalid parameter."""
    return Range(_moment("from", since), _moment("until", until))


def earlier(at: datetime) -> datetime:
    """Return a time before which no event that occurred at `at` can have been stored."""
    return at - DISORDER if at > datetime.min.replace(tzinfo=UTC) + DISORDER else at


def later(at: datetime) -> datetime:
    """Return a time after which every event that occurred before `at` has been stored."""
    return at + DISORDER if at < datetime.max.replace(tzinfo=UTC) - DISORDER else at


def previous_hashes(rows: dict[int, bytes], purged_through: int, purged_hash: bytes) -> dict[int, bytes]:
    """Map event numbers to the hash before them, from hashes by number and the one that retention kept."""
    return {seq + 1: digest for seq, digest in rows.items()} | {purged_through + 1: purged_hash}


def checked_type(text: str | None) -> str | None:
    """Return the event type to filter by; raise the 400 for NUL, which PostgreSQL does not take."""
    if text is not None and "\0" in text:
        raise invalid("type", "`type` contains NUL (U+0000). Remove it.")
    return text


# A quotation mark inside of a JSON string is escaped, so these match the name of a property only.
_ACTORS: Final = {"people": '"actor":"(usr_|operator")', "keys": '"actor":"key_'}


def actor_pattern(by: Literal["people", "keys"] | None) -> str | None:
    """Return the regular expression that finds the actors in the payload of an event; None for all events."""
    return None if by is None else _ACTORS[by]


def log_name(account: UUID) -> str:
    """Return the file name of an export."""
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
