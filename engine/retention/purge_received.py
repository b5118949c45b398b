"""Delete received messages in short transactions: expired ones, and all of an account that is erased.

Each transaction locks the account's head, takes the messages off the kept counts, and removes the bytes that no other
message has. Weekly partitions are dropped once they are empty (`purge_weeks`).
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from engine.ledger import heads
from engine.receiving.inbound_messages import store
from engine.receiving.inbound_messages.rules import COPIES_KNOWN
from engine.store.queries import Conn, Queries

MAX_ROWS = 500  # messages per transaction
MAX_COPIES = 5_000
PAUSE_S = 0.01  # between transactions, since this work is never urgent

_SQL = Queries.beside(__file__, "purge_received.sql")
_NEXT = _SQL.command("next_received")
_FORGET_COPIES = _SQL.command("forget_copies")
_FORGET_EMPTY_COUNTS = _SQL.command("forget_empty_counts")
_FORGET_EMPTY_DAYS = _SQL.command("forget_empty_days")


async def delete_received(connection: Conn, account: UUID, before: UUID, *, late: Callable[[], bool]) -> int:
    """Delete the received messages of an account with ids below `before`, one transaction at least, until `late`.

    Returns their number.
    """
    gone = 0
    while found := [row["id"] for row in await _NEXT.records(connection, account, before, MAX_ROWS)]:
        async with connection.transaction():
            await heads.lock(connection, [account])
            await store.delete(connection, account, found)
        gone += len(found)
        if late():
            break
        await asyncio.sleep(PAUSE_S)
    if gone:
        await _FORGET_EMPTY_COUNTS.execute(connection, account)
        await _FORGET_EMPTY_DAYS.execute(connection, account)
    return gone


async def forget_copies(connection: Conn, at: datetime, *, late: Callable[[], bool]) -> int:
    """Delete the digests by which copies are recognised for 24 hours, once these have passed; return their number."""
    gone = 0
    while not late():
        count = int((await _FORGET_COPIES.execute(connection, at - COPIES_KNOWN, MAX_COPIES)).rpartition(" ")[2])
        gone += count
        if count < MAX_COPIES:
            break
        await asyncio.sleep(PAUSE_S)
    return gone
