"""Unsubscribe links in tests: stored as acceptance stores them, and what they changed."""

from typing import Any
from uuid import UUID

import asyncpg

from engine.base import ids
from engine.mail import unsubscribe_token
from engine.sending.unsubscribes.store import StoredLink
from tests.harness.account_log import logged
from tests.harness.accounts import PEPPER, TestAccount

KEY = unsubscribe_token.key_of(PEPPER)


async def store_link(
    pool: asyncpg.Pool,
    account: TestAccount,
    address: str = "ann@people.test",
    *,
    broadcast: UUID | None = None,
    topic: UUID | None = None,
) -> str:
    """Store a link; return its token."""
    link = StoredLink(ids.uuid7(), account.id, address, broadcast, topic)
    async with pool.acquire() as connection:
        await StoredLink.write(connection, [link])
    return unsubscribe_token.token(KEY, link.id)


async def store_topic(pool: asyncpg.Pool, account: TestAccount, name: str = "Garden tips") -> UUID:
    """Store a contact list; return its id."""
    topic = ids.uuid7()
    await pool.execute(
        "INSERT INTO contact_lists (id, account_id, name, name_key, created_at, updated_at)"
        " VALUES ($1, $2, $3, lower($3), now(), now())",
        topic, account.id, name,
    )  # fmt: skip
    return topic


async def suppressions(pool: asyncpg.Pool, account: TestAccount) -> dict[str, str]:
    """Return the reasons of the suppressed addresses of an account."""
    rows = await pool.fetch("SELECT address, reason FROM suppressions WHERE account_id = $1", account.id)
    return {row["address"]: row["reason"] for row in rows}


async def topic_opt_outs(pool: asyncpg.Pool, account: TestAccount) -> list[tuple[UUID, str]]:
    """Return list and address of the topic opt-outs of an account."""
    order = "ORDER BY list_id, address"
    rows = await pool.fetch(f"SELECT list_id, address FROM topic_opt_outs WHERE account_id = $1 {order}", account.id)
    return [(row["list_id"], row["address"]) for row in rows]


async def audience_events(pool: asyncpg.Pool, account: TestAccount) -> list[tuple[str, dict[str, Any]]]:
    """Return the events about suppressions and contacts of an account, in order."""
    return [one for one in await logged(pool, account.id) if one[0].startswith(("suppression", "contact"))]
