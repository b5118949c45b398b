"""Read and write the `traceparent` of W3C Trace Context, and find it in events. Pure.

A message has at most one: the one that its sender gave, or one that acceptance began. It is kept as text of version 00,
and is the first field of the detail of each event of the message.
"""

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID

Attributes = Mapping[str, str | int]  # of a span
SYSTEM: Final = "waybill"  # `messaging.system` (OpenTelemetry, Semantic conventions for messaging spans)
HEADER: Final = "traceparent"
PATTERN: Final = "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
_GIVEN: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_FLAGS: Final = 0x03  # sampled, and random trace id (level 2); a participant sets all others to 0
_SAMPLED: Final = 0x01
_IN_DETAIL: Final = f'"detail":{{"{HEADER}":"'
_WITHIN: Final = 160  # characters of a payload before its detail: a type and an id


def read(given: str | None) -> str | None:
    """Return a `traceparent` as it is kept, None without a valid one: the specification has invalid ones ignored.

    Several fields that a proxy has joined are invalid. Of a later version only the parts of version 00 are
    read (section 3.2.3).
    """
    if given is None:
        return None
    found = _GIVEN.fullmatch(given.strip(" \t"))
    if found is None:
        return None
    version, trace, parent, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest is not None) or not trace.strip("0") or not parent.strip("0"):
        return None
    return f"00-{trace}-{parent}-{int(flags, 16) & _FLAGS:02x}"


def written(trace_id: int, span_id: int) -> str:
    """Return the `traceparent` of a sampled span in a trace whose id is random."""
    return f"00-{trace_id:032x}-{span_id:016x}-{_FLAGS:02x}"


def continued(traceparent: str, span_id: int) -> str:
    """Return the `traceparent` that names another span of the trace, which is recorded."""
    return f"{traceparent[:36]}{span_id:016x}-{flags_of(traceparent) | _SAMPLED:02x}"


def trace_of(traceparent: str) -> str:
    """Return the id of the trace."""
    return traceparent[3:35]


def parent_of(traceparent: str) -> str:
    """Return the id of the span that the next one belongs to."""
    return traceparent[36:52]


def flags_of(traceparent: str) -> int:
    """Return the flags."""
    return int(traceparent[53:55], 16)


def span_of(message: UUID) -> int:
    """Return the id of the span in which a message was accepted: all processes know it without asking."""
    return message.int & 0xFFFF_FFFF_FFFF_FFFF


def detail_of(traceparent: str | None) -> dict[str, object]:
    """Return the first field of the detail of an event, nothing for a message without a trace."""
    return {} if traceparent is None else {HEADER: traceparent}


def log_fields(traceparent: str | None, message: UUID) -> dict[str, str]:
    """Return the fields that connect a log line with the trace of a message."""
    return {} if traceparent is None else {"trace_id": trace_of(traceparent), "span_id": f"{span_of(message):016x}"}


def in_payload(payload: str) -> str | None:
    """Return the `traceparent` in the payload of an event.

    It is looked for at its place only: further behind, the text may be of strangers.
    """
    at = payload.find(_IN_DETAIL, 0, _WITHIN)
    return None if at < 0 else read(payload[at + len(_IN_DETAIL) :][:55])
