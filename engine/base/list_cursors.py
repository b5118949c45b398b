"""Write and read the cursors of lists that are in the order of a time and a text, newest first. Pure.

A cursor holds the place itself, so it stays valid if the row is deleted.
"""

import base64
import binascii
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from engine.base.errors import invalid

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class ListPlace(NamedTuple):
    """A place in such a list: rows that are older, or as old with a lesser text, come after it."""

    at: datetime
    text: str


NEWEST: Final = ListPlace(datetime(9999, 12, 31, tzinfo=UTC), "")


def cursor(prefix: str, place: ListPlace) -> str:
    """Return the cursor of a place; `prefix` names the list."""
    micros = (place.at - _EPOCH) // _MICROSECOND
    return prefix + base64.urlsafe_b64encode(f"{micros}:{place.text}".encode()).rstrip(b"=").decode()


def place(prefix: str, text: str | None) -> ListPlace:
    """Return the place of a cursor, NEWEST without one; raise the 400 for `before` if it is not one of this list."""
    if text is None:
        return NEWEST
    with suppress(ValueError, OverflowError, binascii.Error):
        if text.startswith(prefix) and text.isascii():
            body = text.removeprefix(prefix)
            plain = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True).decode()
            micros, colon, found = plain.partition(":")
            if colon and micros.isascii() and micros.isdigit() and "\0" not in found:
                return ListPlace(_EPOCH + int(micros) * _MICROSECOND, found)
    raise invalid("before", "`before` is not a cursor of this list. Use the `nextCursor` of an earlier page.")
