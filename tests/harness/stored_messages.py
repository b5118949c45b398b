"""Read the rows that acceptance and settling wrote for a message."""

from typing import Any
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct

from tests.harness.accounts import TestAccount, make_account
from tests.harness.sending import Process, message_id


class PlacedAddress(Struct, frozen=True):
    """A recipient by its index and address."""

    n: int
    address: str


async def sent(door: Process, *to: str) -> tuple[TestAccount, UUID]:
    """An accepted message to these addresses, of an account of its own."""
    account = await make_account(door.pool)
    return account, message_id(await door.send(account, to=list(to) or ["ann@people.test"]))


async def events(pool: asyncpg.Pool, message: UUID) -> list[tuple[str, dict[str, Any]]]:
    """(type, detail) of the waybill after `accepted`."""
    rows = await pool.fetch("SELECT type, payload FROM events WHERE message_id = $1 ORDER BY seq", message)
    assert rows[0]["type"] == "accepted"
    return [(row["type"], orjson.loads(row["payload"])["detail"]) for row in rows[1:]]


async def types(pool: asyncpg.Pool, message: UUID) -> list[str]:
    """The event types after `accepted`."""
    return [kind for kind, _ in await events(pool, message)]


async def recipients(pool: asyncpg.Pool, message: UUID) -> dict[str, asyncpg.Record]:
    """Stored recipients by address."""
    rows = await pool.fetch("SELECT * FROM recipients WHERE message_id = $1 ORDER BY n", message)
    return {row["address"]: row for row in rows}


async def statuses(pool: asyncpg.Pool, message: UUID) -> dict[str, str]:
    """Their statuses by address."""
    return {address: row["status"] for address, row in (await recipients(pool, message)).items()}


async def status(pool: asyncpg.Pool, message: UUID) -> str:
    """The message's status."""
    return str(await pool.fetchval("SELECT status FROM messages WHERE id = $1", message))


async def suppressed(pool: asyncpg.Pool, account: TestAccount) -> list[str]:
    """The account's suppressed addresses."""
    rows = await pool.fetch("SELECT address FROM suppressions WHERE account_id = $1 ORDER BY address", account.id)
    return [row["address"] for row in rows]


async def day_counts(pool: asyncpg.Pool, account: TestAccount) -> dict[str, int]:
    """The account's outcomes of the day, but for zeros."""
    row = await pool.fetchrow(
        "SELECT delivered, bounced, complained, failed FROM account_days WHERE account_id = $1", account.id
    )
    return {} if row is None else {name: count for name, count in row.items() if count}
