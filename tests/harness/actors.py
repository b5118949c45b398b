"""The actors that events of the account log name."""

import asyncpg

from engine.base import ids
from engine.people.api_keys import rules
from tests.harness.accounts import TestAccount


async def key_of(pool: asyncpg.Pool, account: TestAccount) -> str:
    """`key_…` of the account's own key."""
    key = rules.parse(account.token)
    assert key is not None
    return ids.format_id(ids.Kind.API_KEY, await pool.fetchval("SELECT id FROM api_keys WHERE key_id = $1", key.key_id))
