"""Read all opt-outs of a list, page by page, without holding a connection between pages."""

from collections.abc import AsyncGenerator
from typing import Final
from uuid import UUID

import asyncpg

from engine.base.list_cursors import NEWEST, ListPlace
from engine.sending.unsubscribes import store
from engine.sending.unsubscribes.types import TopicOptOut

ROWS: Final = 1_000  # in one page


async def pages(pool: asyncpg.Pool, account: UUID, topic: UUID) -> AsyncGenerator[list[TopicOptOut], None]:
    """Yield the opt-outs of the list `topic`, newest first."""
    before = NEWEST
    while True:
        rows = await store.topic_opt_outs(pool, account, topic, before=before, limit=ROWS)
        if rows:
            yield rows
        if len(rows) < ROWS:
            return
        before = ListPlace(rows[-1].created_at, rows[-1].address)
