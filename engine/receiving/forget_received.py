"""Delete the content of received messages whose route does not retain it, once they are posted or forwarded.

The transaction that stores such a message notes it in `inbound_forgets`. A worker looks whether any post of it still
waits, and whether its forwarding is final, delivered or not; then it deletes the bytes and what was taken from them.
"""

from collections import defaultdict
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base.settings import Settings
from engine.ledger import heads
from engine.receiving.inbound_messages import store as messages
from engine.store.jobs import Job
from engine.store.queries import Queries

BATCH: Final = 200
MAX_BATCHES: Final = 20  # of one run

_SQL = Queries.beside(__file__, "forget_received.sql")
_DROP = _SQL.command("drop_forgotten")


class LookedAt(Struct, frozen=True):
    """A message that does not retain its content; `is_final` if nothing needs the content any more."""

    message_id: UUID
    account_id: UUID
    is_final: bool


_TAKE_DUE = _SQL.rows("take_due", LookedAt)


async def forget_received(pool: asyncpg.Pool, _: Settings) -> int:
    """Delete the content of messages that are final; return of how many."""
    forgotten = 0
    for _batch in range(MAX_BATCHES):
        due = await _TAKE_DUE.fetch(pool, BATCH)
        final: dict[UUID, list[UUID]] = defaultdict(list)
        for one in due:
            if one.is_final:
                final[one.account_id].append(one.message_id)
        for account, wanted in sorted(final.items()):
            async with pool.acquire() as connection, connection.transaction():
                await heads.lock(connection, [account])
                await messages.erase_content(connection, account, wanted)
                await _DROP.execute(connection, wanted)
            forgotten += len(wanted)
        if len(due) < BATCH:
            break
    return forgotten


JOB = Job("received content", every_s=1, run=forget_received, quiet_s=5)
