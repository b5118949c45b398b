"""Request bodies on their way in: bounded in size, in time, in pieces, and in the memory that they take together.

Credentials are checked before a body is read, and a declared size before its first octet.
"""

import time
from typing import Final

from api.http.stream import Connection
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.memory_pool import MemoryPool, Reservation
from engine.base.settings import Settings
from engine.base.transfer_rate import WINDOW_S, TransferRate
from engine.store.deadlines import within

# Each piece that the server hands over costs from 7 µs, when more is waiting, to 90 µs, however small it is (`ops bench
# --readers`). A client that writes JSON token by token stays below the free pieces; TCP segments are larger (RFC 9293
# 3.7.1: 536 octets), and so are the chunks of common clients.
FREE_PIECES: Final = 256
MIN_PIECE_BYTES: Final = 512  # on average, beyond those

# Requests without credentials get one eighth of the memory, and one network an eighth of that.
STRANGERS_PART: Final = 8
MIN_STRANGER_BYTES: Final = 64 * 1024


class BodyMemory:
    """The request bodies that one worker holds: those of accounts, and apart from them those without credentials."""

    def __init__(self, settings: Settings) -> None:
        total = settings.max_inflight_bytes
        strangers = max(MIN_STRANGER_BYTES, total // STRANGERS_PART)
        each = max(MIN_STRANGER_BYTES, strangers // STRANGERS_PART)
        self.strangers = MemoryPool(strangers, owner_limit=each, part_limit=each)
        self.callers = MemoryPool.for_accounts(total - strangers, largest=settings.max_request_bytes)


def check_size(size: int, limit: int) -> None:
    """Raise 413 for a body that is larger than its operation allows."""
    if size > limit:
        raise Refusal(ErrorType.PAYLOAD_TOO_LARGE, f"This request may have a body of {limit} bytes.", limit=limit)


async def read_body(
    connection: Connection, declared: int | None, limit: int, settings: Settings, reservation: Reservation
) -> bytes:
    """Return the whole body, of `declared` octets where its client says so. The caller releases the reservation.

    Raises 413 above `limit`, 400 for a body that comes too slowly, in too many pieces or not to its end, 429 or 503
    when it gets no memory.
    """
    check_size(declared or 0, limit)
    if declared == 0:
        connection.body_ended()
        return b""
    began = time.monotonic()
    first_s = WINDOW_S if settings.body_min_bytes_per_s else settings.body_deadline_s
    try:
        with within(min(first_s, settings.body_deadline_s)):
            first = await connection.more()
        if len(first) == declared:  # nearly every body comes whole: what follows costs 5 µs
            reservation.take(declared)
            connection.body_ended()
            return first
        pieces: list[bytes] = []
        reservation.begin(on_revoke=pieces.clear)
        pace = TransferRate(began, deadline_s=settings.body_deadline_s, min_bytes_per_s=settings.body_min_bytes_per_s)
        await _receive(connection, first, declared, limit, pace, reservation, pieces)
    except TimeoutError:
        raise invalid("body", "The request body came too slowly.") from None
    reservation.complete()
    return b"".join(pieces)


async def _receive(
    connection: Connection,
    piece: bytes,
    declared: int | None,
    limit: int,
    pace: TransferRate,
    reservation: Reservation,
    pieces: list[bytes],
) -> None:
    """Append the body's pieces to `pieces`; `piece` is the first, or empty where there is none."""
    size = count = 0
    while piece:
        size += len(piece)
        count += 1
        check_size(size, limit)
        if count > FREE_PIECES + size // MIN_PIECE_BYTES:
            raise invalid("body", f"The request body came in {count} pieces for {size} bytes; write larger ones.")
        reservation.take(len(piece))
        pieces.append(piece)
        if declared is not None and size >= declared:
            break
        now = time.monotonic()
        with within(pace.timeout_s(size, now)):
            piece = await connection.more()
    connection.body_ended()
