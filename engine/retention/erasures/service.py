"""Request an erasure, once per address at a time."""

from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.retention.erasures import rules, store
from engine.retention.erasures.types import ErasureRow


async def request(pool: asyncpg.Pool, account: UUID, address: str, *, actor: str) -> ErasureRow:
    """Queue the erasure of a canonical address; return the present one if the address has one that is not completed.

    Raises the 409 if MAX_OPEN erasures are not completed. The event does not name the address.
    """
    async with pool.acquire() as connection, connection.transaction():
        if account not in await heads.lock(connection, [account]):
            raise not_found("account")
        present = await store.OF_ADDRESS.first(connection, account, address)
        if present is not None:
            return present
        if (await store.COUNT_OPEN.records(connection, account))[0]["erasures"] >= rules.MAX_OPEN:
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"{rules.MAX_OPEN} erasures are in progress in your account, the limit. Retry when one has completed.",
                state="running",
            )
        row = await store.REQUEST.first(connection, ids.uuid7(), account, address, clock.now())
        assert row is not None
        detail = {"id": ids.format_id(ids.Kind.ERASURE, row.id)}
        await record_event(connection, account, AccountEvent.ERASURE_REQUESTED, detail, actor=actor)
    return row
