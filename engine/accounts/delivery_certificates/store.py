"""Read what a certificate says, and read and write the keys that sign certificates."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from engine.accounts.delivery_certificates import signing
from engine.accounts.delivery_certificates.types import CertifiedRow, KeyRow
from engine.base import clock, ids
from engine.base.secrets import Pepper
from engine.ledger.platform_log import record_platform_change
from engine.sending.messages.rules import made_at
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__, lock_schema=LOCK_SCHEMA)
_READ = _SQL.rows("read_certified", CertifiedRow)
_ACTIVE = _SQL.rows("active_key", KeyRow)
ALL_KEYS = _SQL.rows("all_keys", KeyRow)
_INSERT = _SQL.command("insert_key")
_LOCK = _SQL.command("lock_keys")
_RETIRE = _SQL.command("retire_key")
_LOCK_NUMBER: Final = 0x57617971  # one change of keys at a time on a database
_SKEW: Final = timedelta(days=1)  # max. clock difference between the accepting and the settling host


async def read(source: Source, account: UUID, message: UUID) -> CertifiedRow | None:
    """Return what is stored about a message; None if there is no such account."""
    first_event = ids.floor_of(clock.milliseconds(made_at(message) - _SKEW))
    return await _READ.first(source, account, message, first_event)


async def active_key(pool: asyncpg.Pool, pepper: Pepper, at: datetime) -> KeyRow:
    """Return the key that signs; the first call of an installation makes it."""
    found = await _ACTIVE.first(pool)
    if found is None:
        await _INSERT.execute(pool, *signing.new_key(pepper), at)  # another process may be quicker
        found = await _ACTIVE.first(pool)
    if found is None:
        raise RuntimeError("no key signs certificates, right after one was stored")
    return found


async def rotate(pool: asyncpg.Pool, pepper: Pepper, at: datetime) -> str:
    """Retire the key that signs, delete its private half, and store a new one; return the id of the new one."""
    async with pool.acquire() as connection, connection.transaction():
        await _LOCK.execute(connection, _LOCK_NUMBER)
        retired = await _RETIRE.records(connection, at)
        kid, public, sealed = signing.new_key(pepper)
        await _INSERT.execute(connection, kid, public, sealed, at)
        detail = {"key": kid, "retired": retired[0]["kid"] if retired else None}
        await record_platform_change(connection, "certificate_key.rotated", detail)
    return kid
