"""Read request bodies within bounds of size, time, number of pieces and total memory.

Credentials are checked before a body is read, and a declared size before the first octet of the body.
"""

import time
from functools import partial
from typing import Final

from api.http.stream import Connection
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.memory_pool import MemoryPool, Reservation
from engine.base.settings import Settings
from engine.base.transfer_rate import WINDOW_S, TransferRate
from engine.store import large_mail
from engine.store.deadlines import within

# A piece of any size costs 7 µs if more is waiting, up to 90 µs if not (ops/decisions/0043). A client that writes
# JSON token by token stays below the free pieces; TCP segments (RFC 9293 3.7.1: 536 octets) and the chunks of common
# clients are larger than the minimum.
FREE_PIECES: Final = 256
MIN_PIECE_BYTES: Final = 512  # on average, beyond the free pieces

# Requests without credentials get one eighth of the memory, and one network an eighth of that.
ANONYMOUS_PART: Final = 8
MIN_ANONYMOUS_BYTES: Final = 64 * 1024


class BodyMemory:
    """The memory for request bodies of one worker, with a separate part for requests without credentials."""

    def __init__(self, settings: Settings) -> None:
        total = settings.max_inflight_bytes
        anonymous = max(MIN_ANONYMOUS_BYTES, total // ANONYMOUS_PART)
        each = max(MIN_ANONYMOUS_BYTES, anonymous // ANONYMOUS_PART)
        self.anonymous = MemoryPool(anonymous, owner_limit=each, part_limit=each)
        self.callers = MemoryPool.for_accounts(total - anonymous, largest=settings.max_request_bytes)


def check_size(size: int, limit: int) -> None:
    """Raise 413 for a body that is larger than its operation allows."""
    if size > limit:
        raise Refusal(
            ErrorType.PAYLOAD_TOO_LARGE,
            f"The body is larger than the limit of {limit} bytes. Send less in one request.",
            limit=limit,
        )


async def read_body(
    connection: Connection, declared: int | None, limit: int, settings: Settings, reservation: Reservation
) -> bytes:
    """Return the whole body; `declared` is its Content-Length, if it has one. The caller releases the reservation.

    Raises 413 above `limit`, 400 for a body that arrives too slowly, in too many pieces or incomplete, and 429 or 503
    when no memory is free for it.
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
        if len(first) == declared:  # nearly every body arrives in one piece; the path below costs 5 µs more
            reservation.take(declared)
            connection.body_ended()
            return first
        pieces: list[bytes] = []
        reservation.begin(on_revoke=pieces.clear)
        pace = TransferRate(began, deadline_s=settings.body_deadline_s, min_bytes_per_s=settings.body_min_bytes_per_s)
        await _receive(connection, first, declared, limit, pace, reservation, pieces)
    except TimeoutError:
        raise too_slow() from None
    reservation.complete()
    if reservation.octets <= large_mail.VERY_LARGE_BYTES:
        return b"".join(pieces)
    return await large_mail.in_thread(reservation.octets, partial(b"".join, pieces))


def too_slow() -> Refusal:
    """Return the 400 for a body that arrives too slowly."""
    return invalid("body", "The request body arrived too slowly. Send it again over a faster connection.")


async def _receive(
    connection: Connection,
    piece: bytes,
    declared: int | None,
    limit: int,
    pace: TransferRate,
    reservation: Reservation,
    pieces: list[bytes],
) -> None:
    """Append the body's pieces to `pieces`; `piece` is the first one, empty if there is none."""
    size = count = 0
    while piece:
        size += len(piece)
        count += 1
        check_size(size, limit)
        if count > FREE_PIECES + size // MIN_PIECE_BYTES:
            raise invalid("body", f"The request body came in {count} pieces for {size} bytes; send larger pieces.")
        reservation.take(len(piece))
        pieces.append(piece)
        if declared is not None and size >= declared:
            break
        now = time.monotonic()
        with within(pace.timeout_s(size, now)):
            piece = await connection.more()
    connection.body_ended()
