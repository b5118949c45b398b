"""Broadcasts in tests: lists with contacts, broadcasts that are sent, and what became of their recipients."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct

from engine.audience.broadcasts import draft as broadcast_draft
from engine.audience.broadcasts import send as broadcast_send
from engine.audience.broadcasts import store
from engine.audience.broadcasts.draft import BroadcastFields
from engine.audience.broadcasts.run import BroadcastRunner
from engine.audience.broadcasts.types import Broadcast, BroadcastCounts
from engine.base import ids
from engine.base.settings import Settings
from engine.sending.preparation import Origin
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount
from tests.harness.sending import Process, process

ACTOR = "key_test"


class BroadcastWorld(Struct):
    """A process that accepts, and the runner of a worker, on one database."""

    process: Process
    pool: asyncpg.Pool
    runner: BroadcastRunner

    async def draft(self, account: TestAccount, list_id: UUID | None, **fields: Any) -> UUID:
        """Create a draft to a list with some content; return its id."""
        given = {
            "name": "News",
            "sender": account.sender,
            "list_id": list_id,
            "subject": "News",
            "text": "Hello {{email}}",
        }
        made = await broadcast_draft.create(
            self.pool,
            self.process.acceptor,
            BroadcastFields(**(given | fields)),
            Origin(account.id, "api"),
            actor=ACTOR,
        )
        return made.id

    async def send(self, account: TestAccount, broadcast: UUID, at: str | None = None) -> Broadcast:
        """Send a broadcast."""
        return await broadcast_send.send(
            self.pool, self.process.acceptor, broadcast, at, Origin(account.id, "api"), give_up_s=3600.0, actor=ACTOR
        )

    async def sent(self, account: TestAccount, list_id: UUID, **fields: Any) -> UUID:
        """Create and send a broadcast; return its id."""
        broadcast = await self.draft(account, list_id, **fields)
        await self.send(account, broadcast)
        return broadcast

    async def read(self, account: TestAccount, broadcast: UUID) -> Broadcast:
        """Return a broadcast as stored."""
        row = await store.READ.first(self.pool, account.id, broadcast)
        assert row is not None
        return row

    async def counts(self, broadcast: UUID) -> BroadcastCounts:
        """Return the counts of a broadcast."""
        return await store.counts(self.pool, broadcast)

    async def make_due(self, broadcast: UUID) -> None:
        """Let the workers look at a broadcast now."""
        await self.pool.execute("UPDATE broadcast_work SET due_at = now() WHERE broadcast_id = $1", broadcast)


@contextlib.asynccontextmanager
async def broadcasting(settings: Settings) -> AsyncIterator[BroadcastWorld]:
    """A process that accepts, with the runner of a worker."""
    async with process(settings) as running:
        runner = BroadcastRunner(running.pool, settings)
        try:
            yield BroadcastWorld(running, running.pool, runner)
        finally:
            await runner.close()


async def with_stream(pool: asyncpg.Pool, account: TestAccount, slug: str = "announcements") -> TestAccount:
    """The account with the stream that broadcasts use by default."""
    await pool.execute(
        "INSERT INTO streams (account_id, slug, name, created_at) VALUES ($1, $2, $2, now()) ON CONFLICT DO NOTHING",
        account.id,
        slug,
    )
    return account


async def make_list(
    pool: asyncpg.Pool,
    account: TestAccount,
    people: int | Sequence[str] | Mapping[str, Mapping[str, object]],
    *,
    domains: int = 1,
) -> UUID:
    """Store a list with contacts: so many, these addresses, or addresses with their fields; return its id."""
    if isinstance(people, int):
        people = [f"p{number}@d{number % domains}.{ids.encode(account.id)[-8:]}.test" for number in range(people)]
    fields = people if isinstance(people, Mapping) else {address: {} for address in people}
    list_id = ids.uuid7()
    rows = [(ids.uuid7(), address, orjson.dumps(dict(values)).decode()) for address, values in fields.items()]
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "INSERT INTO contact_lists (id, account_id, name, name_key, contacts, created_at, updated_at)"
            " VALUES ($1, $2, $3, $3, $4, now(), now())",
            list_id, account.id, str(list_id), len(rows),
        )  # fmt: skip
        await connection.execute(
            "INSERT INTO contacts (id, account_id, address, email, name, fields, consent, consent_at, consent_by,"
            " search, trigrams, created_at, updated_at)"
            " SELECT n.id, $1, n.address, n.address, NULL, n.fields::jsonb, 'customer', now(), 'test',"
            " n.address, '{}', now(), now() FROM unnest($2::uuid[], $3::text[], $4::text[]) AS n (id, address, fields)"
            " ON CONFLICT (account_id, address) DO NOTHING",
            account.id, *map(list, zip(*rows, strict=True)),
        )  # fmt: skip
        await connection.execute(
            "INSERT INTO contact_list_members (list_id, contact_id, account_id, added_at)"
            " SELECT $2, id, $1, now() FROM contacts WHERE account_id = $1 AND address = ANY ($3::text[])",
            account.id, list_id, [row[1] for row in rows],
        )  # fmt: skip
    return list_id


async def addressed(pool: asyncpg.Pool, account: TestAccount) -> list[str]:
    """Return the recipients of all messages of an account, in order of their addresses."""
    rows = await pool.fetch("SELECT address FROM recipients WHERE account_id = $1 ORDER BY address", account.id)
    return [row["address"] for row in rows]


async def states(pool: asyncpg.Pool, broadcast: UUID) -> dict[str, str]:
    """Return the states of a broadcast's recipients by address."""
    rows = await pool.fetch("SELECT address, state FROM broadcast_recipients WHERE broadcast_id = $1", broadcast)
    return {row["address"]: row["state"] for row in rows}


async def broadcast_events(pool: asyncpg.Pool, account: TestAccount) -> list[tuple[str, dict[str, Any]]]:
    """Return the events about broadcasts of an account, in order."""
    found = await logged(pool, account.id, "broadcast.")
    return [(kind.removeprefix("broadcast."), detail) for kind, detail in found]
