"""Store the bodies of large messages by COPY, piece by piece, apart from the other rows of a batch.

As a parameter, a body is copied by the driver three times, and held twice; as an element of an array the server copies
it five times more, and writes it to a temporary file with others that exceed work_mem together.
"""

from collections.abc import AsyncIterator, Sequence
from struct import Struct as Packing
from typing import Final, cast

from engine.sending.emails.types import Prepared
from engine.store.queries import Conn

LARGE_BYTES: Final = 256 * 1024  # of less, one call without a transaction of its own is cheaper
_PIECE_BYTES: Final = 128 * 1024
_TABLE, _COLUMNS = "message_bodies", ("message_id", "mime", "smtputf8")
# PostgreSQL, "COPY", Binary Format: a header, and for each row the number of its fields and each field's length.
_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_row_start = Packing(">hi16si").pack
_row_end = Packing(">i?").pack


def is_large(message: Prepared) -> bool:
    """Return True if the body is stored apart."""
    return len(message.mime) > LARGE_BYTES


async def insert(connection: Conn, messages: Sequence[Prepared]) -> None:
    """Insert the large bodies of these messages, within the caller's transaction."""
    large = [one for one in messages if is_large(one)]
    if large:
        source = cast("AsyncIterator[bytes]", _pieces(large))  # the driver takes any buffer
        await connection.copy_to_table(_TABLE, columns=_COLUMNS, format="binary", source=source)


async def _pieces(messages: Sequence[Prepared]) -> AsyncIterator[bytes | memoryview]:
    """Yield the rows; the driver waits between two pieces until the server has taken what was sent."""
    before = _HEADER
    for one in messages:
        body = memoryview(one.mime)
        before += _row_start(len(_COLUMNS), len(one.id.bytes), one.id.bytes, len(body))
        yield b"".join((before, body[:_PIECE_BYTES]))
        for start in range(_PIECE_BYTES, len(body), _PIECE_BYTES):
            yield body[start : start + _PIECE_BYTES]
        before = _row_end(1, one.smtputf8)
    yield before + _TRAILER
