"""Read what the log of an account, and the mails to its people, say."""

from typing import Any
from uuid import UUID

import asyncpg
import orjson

LoggedEvents = list[tuple[str, dict[str, Any]]]


async def logged(pool: asyncpg.Pool, account: UUID, prefix: str = "") -> LoggedEvents:
    """Return type and detail of the account's events whose types begin with `prefix`, in order."""
    rows = await pool.fetch(
        "SELECT type, payload FROM events WHERE account_id = $1 AND starts_with(type, $2) ORDER BY seq", account, prefix
    )
    return [(row["type"], orjson.loads(row["payload"])["detail"]) for row in rows]


async def details_logged(pool: asyncpg.Pool, account: UUID, kind: str) -> list[dict[str, Any]]:
    """Return the details of the account's events of a type, in order."""
    return [detail for one, detail in await logged(pool, account, kind) if one == kind]


async def mails_to(pool: asyncpg.Pool, address: str) -> LoggedEvents:
    """Return kind and detail of the mails to an address, in order."""
    rows = await pool.fetch("SELECT kind, detail FROM system_mail WHERE address = $1 ORDER BY created_at, id", address)
    return [(row["kind"], orjson.loads(row["detail"])) for row in rows]


async def kinds_mailed(pool: asyncpg.Pool, address: str) -> list[str]:
    """Return the kinds of the mails to an address, in order."""
    return [kind for kind, _ in await mails_to(pool, address)]
