"""The account log written directly, by the parts that seal it everywhere else: many events in a moment."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import orjson

from engine.base import clock, ids
from engine.ledger import heads, log
from engine.ledger.events import append_locked

Written = tuple[str, Mapping[str, object]]


async def write(
    pool: asyncpg.Pool,
    account: UUID,
    *events: Written,
    message: UUID | None = None,
    at: datetime | None = None,
) -> int:
    """Seal events (type, detail), of `message` where one is given, in one transaction; gives the last one's place."""
    public = None if message is None else ids.format_id(ids.Kind.MESSAGE, message)
    moment = at or clock.now()
    entries = [log.Entry(account, kind, log.detail_text(detail), moment, message, public) for kind, detail in events]
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        await append_locked(connection, locked, entries)
    return locked[account].seq


async def many(pool: asyncpg.Pool, account: UUID, count: int, kind: str = "deferred") -> int:
    """Seal so many events of no message, numbered in their detail; gives the last one's place."""
    last = 0
    for first in range(0, count, 1000):
        last = await write(pool, account, *[(kind, {"n": n}) for n in range(first, min(count, first + 1000))])
    return last


async def message(
    pool: asyncpg.Pool,
    account: UUID,
    *recipients: str,
    stream: str = "transactional",
    tags: Sequence[str] = (),
    subject: str = "Hello",
    status: str = "queued",
) -> UUID:
    """Insert a message as acceptance leaves it in the tables, without its body, its event and its queue rows."""
    made = ids.uuid7()
    to = recipients or ("ann@people.test",)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, tags,"
            " recipient_count, size_bytes)"
            " VALUES ($1, $2, $3, 'api', 'shop@shop.test', 'shop.test', $4, $5, $6, $7, 1)",
            made, account, status, subject, stream, orjson.dumps(list(tags)).decode() if tags else None, len(to),
        )  # fmt: skip
        await connection.executemany(
            "INSERT INTO recipients (message_id, n, account_id, kind, address, status)"
            " VALUES ($1, $2, $3, 'to', $4, $5)",
            [(made, n, account, address, status) for n, address in enumerate(to)],
        )
    return made


async def purge(pool: asyncpg.Pool, account: UUID, through: int) -> None:
    """Take the oldest events away as retention does: the head keeps the hash of the last one taken."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM account_heads WHERE account_id = $1 FOR UPDATE", account)
        await connection.execute(
            "UPDATE account_heads SET purged_through_seq = $2,"
            " purged_hash = (SELECT hash FROM events WHERE account_id = $1 AND seq = $2) WHERE account_id = $1",
            account, through,
        )  # fmt: skip
        await connection.execute("DELETE FROM events WHERE account_id = $1 AND seq <= $2", account, through)
