"""Accounts for tests: each test makes its own, so that a leak between tenants becomes a failing test."""

import functools
import itertools
from collections.abc import Collection
from datetime import UTC, datetime
from typing import ClassVar
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.authentication import dkim_signing as dkim
from engine.base import ids
from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from engine.base.secrets import Pepper, digest
from engine.people.account import store as accounts
from engine.people.api_keys import rules as keys
from engine.people.api_keys import store as key_store
from engine.sending.domains import store as domain_store
from engine.store.caches import bump
from tests.harness import rsa_keys

PEPPER = Pepper("test pepper, of no use anywhere else")
_PAIRS = 16  # so many that a test meets no pair twice
_turns = itertools.count()


class TestAccount(Struct, frozen=True):
    """An account with a key and a verified domain."""

    __test__: ClassVar[bool] = False  # pytest takes the name for a test class

    id: UUID
    token: str
    domain: str

    @property
    def public_id(self) -> str:
        """`acc_…`."""
        return ids.format_id(ids.Kind.ACCOUNT, self.id)

    @property
    def sender(self) -> str:
        """An address of the verified domain."""
        return f"shop@{self.domain}"

    def email(self, **fields: object) -> dict[str, object]:
        """A send request that is accepted, with `fields` in place of its own; a field of None is left out."""
        request = {"from": self.sender, "to": "ann@people.test", "subject": "Hello", "text": "Hello!"} | fields
        return {name: value for name, value in request.items() if value is not None}


async def make_account(
    pool: asyncpg.Pool,
    *,
    plan: str = "growth",
    daily_cap: int | None = 100_000,
    monthly_cap: int | None = None,
    scopes: Collection[str] = SCOPES,
    domain: str | None = None,
    verified: bool = True,
    pepper: Pepper = PEPPER,
    account: UUID | None = None,
) -> TestAccount:
    """A new account; `daily_cap` None leaves it on the ladder. Nothing is cached of it anywhere yet."""
    account = account or ids.uuid7_at(datetime.now(UTC))
    name = domain or f"{ids.encode(account)}.test"
    key = keys.new_key()
    async with pool.acquire() as connection, connection.transaction():
        await accounts.insert(
            connection, account, name=f"Account {name}", plan=Plan(plan), daily_cap=daily_cap, monthly_cap=monthly_cap
        )
        await _insert_key(connection, account, key, scopes, None, pepper)
        await _insert_domain(connection, account, name, verified=verified, pepper=pepper)
    return TestAccount(account, key.token, name)


async def add_key(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    scopes: Collection[str] = SCOPES,
    expires_at: datetime | None = None,
    domains: Collection[str] | None = None,
    streams: Collection[str] | None = None,
    recipients: Collection[str] | None = None,
    approval: str | None = None,
    pepper: Pepper = PEPPER,
) -> str:
    """Another key of the account, limited to domains, streams and recipients if given; gives its token."""
    key = keys.new_key()
    async with pool.acquire() as connection, connection.transaction():
        made = await _insert_key(connection, account, key, scopes, expires_at, pepper)
        await key_store.LIMIT.execute(connection, made, domains, streams, None, None, recipients, approval)
        await bump(connection, "keys")
    return key.token


async def revoke_key(pool: asyncpg.Pool, account: UUID, token: str) -> None:
    """Revoke a key as the service does: processes notice the changed stamp."""
    key = keys.parse(token)
    assert key is not None
    async with pool.acquire() as connection, connection.transaction():
        row = await key_store.FIND.first(connection, key.key_id)
        assert row is not None
        await key_store.REVOKE.execute(connection, account, row.id)
        await bump(connection, "keys")


async def set_status(pool: asyncpg.Pool, account: UUID, status: str) -> None:
    """`active`, `suspended` or `closing`."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("UPDATE accounts SET status = $2 WHERE id = $1", account, status)
        await bump(connection, "keys")


async def add_domain(
    pool: asyncpg.Pool, account: UUID, name: str, *, verified: bool = True, pepper: Pepper = PEPPER
) -> None:
    """Another domain of the account."""
    async with pool.acquire() as connection, connection.transaction():
        await _insert_domain(connection, account, name, verified=verified, pepper=pepper)
        await bump(connection, "domains")


async def add_stream(pool: asyncpg.Pool, account: UUID, slug: str) -> None:
    """Another stream of the account."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("INSERT INTO streams (account_id, slug, name) VALUES ($1, $2, $2)", account, slug)
        await bump(connection, "streams")


async def _insert_key(
    connection: asyncpg.pool.PoolConnectionProxy,
    account: UUID,
    key: keys.FreshApiKey,
    scopes: Collection[str],
    expires_at: datetime | None,
    pepper: Pepper,
) -> UUID:
    made = ids.uuid7_at(datetime.now(UTC))
    await key_store.INSERT.execute(
        connection,
        made,
        key.key_id,
        account,
        "tests",
        digest(pepper, key.secret),
        sorted(scopes),
        expires_at,
        pepper.fingerprint,
    )
    return made


async def _insert_domain(
    connection: asyncpg.pool.PoolConnectionProxy, account: UUID, name: str, *, verified: bool, pepper: Pepper
) -> None:
    domain = ids.uuid7_at(datetime.now(UTC))
    await domain_store.insert(connection, domain, account, name, pepper=pepper, keys=_pair(next(_turns) % _PAIRS))
    if verified:
        await domain_store.MARK.execute(connection, domain, "verified")


@functools.cache
def _pair(number: int) -> tuple[domain_store.FreshKey, ...]:
    """Return one of the key pairs of this worker."""
    der = rsa_keys.all_keys()[number]
    rsa = domain_store.FreshKey("wb1", "rsa-sha256", der, dkim.public_txt(der))
    return (rsa, domain_store.fresh_key("wb1e", "ed25519-sha256"))
