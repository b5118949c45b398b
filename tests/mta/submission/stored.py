"""Read the rows of a submitted message."""

import asyncpg

from engine.base import ids
from tests.harness.accounts import TestAccount


async def stored(pool: asyncpg.Pool, reply: str) -> asyncpg.Record:
    """The message that a reply names, with its body."""
    assert reply.startswith("250 2.0.0 "), reply
    row = await pool.fetchrow(
        "SELECT m.*, b.mime, b.smtputf8 FROM messages m JOIN message_bodies b ON b.message_id = m.id WHERE m.id = $1",
        ids.parse_id(ids.Kind.MESSAGE, reply.split()[4].rstrip(",")),
    )
    assert row is not None
    return row


async def count(pool: asyncpg.Pool, account: TestAccount) -> int:
    return int(await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id))


async def recipients(pool: asyncpg.Pool, row: asyncpg.Record) -> list[tuple[str, str, str | None]]:
    rows = await pool.fetch("SELECT kind, address, name FROM recipients WHERE message_id = $1 ORDER BY n", row["id"])
    return [(one["kind"], one["address"], one["name"]) for one in rows]
