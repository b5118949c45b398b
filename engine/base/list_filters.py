"""Parse filters that several lists have in common: bounds of time, and text to search for. Pure."""

import re
import unicodedata
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from engine.base import clock, ids
from engine.base.errors import invalid

FIRST_ID: Final = UUID(int=0)
LAST_ID: Final = UUID(int=(1 << 128) - 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WILD = re.compile(r"[\\%_]")


def patterns(text: str) -> list[str]:
    """Return ILIKE patterns that match `text` anywhere; wildcards in `text` are literal.

    Under the C locale, PostgreSQL folds only ASCII letters, so text with other letters is matched in lower and in upper
    case as well.
    """
    composed = unicodedata.normalize("NFC", text)
    found = dict.fromkeys((text, composed))
    if not text.isascii():
        found |= dict.fromkeys((composed.lower(), composed.upper()))
    return ["%" + _WILD.sub(r"\\\g<0>", one) + "%" for one in found]


def narrowed(asked: str | None, allowed: AbstractSet[str] | None) -> list[str] | None:
    """Return the names to select by: `asked`, or all that are `allowed`; None selects every name.

    A name that is not allowed selects nothing, as an unknown one does.
    """
    if allowed is None:
        return None if asked is None else [asked]
    return sorted(allowed if asked is None else allowed & {asked})


def first_id(name: str, text: str) -> UUID:
    """Return the smallest id made at or after the time `text` of the parameter `name`; raise the 400 for no time."""
    wanted = invalid(name, f"`{name}` must be a UTC time such as 2026-11-20T08:09:10Z.")
    if not text.endswith("Z"):
        raise wanted
    try:
        since = clock.parse_iso(text) - _EPOCH
    except ValueError:
        raise wanted from None
    return ids.floor_of(-(-since // timedelta(milliseconds=1)))


def without_nul(name: str, text: str) -> str:
    """Return `text`; raise the 400 if it contains NUL."""
    if "\0" in text:
        raise invalid(name, f"`{name}` contains NUL (U+0000). Remove it.")
    return text
