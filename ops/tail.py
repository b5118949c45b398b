"""Implementation of `ops tail`: follow the events of one or all accounts, read from the database."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.store import postgres
from engine.store.queries import Queries

EVERY_S = 0.3
LOOK_BACK_MS = 5_000  # event ids are older than their commit, so the last seconds are read again

_SQL = Queries.beside(__file__, "tail.sql")


class TailedEvent(Struct, frozen=True):
    """An event, as `ops tail` shows it."""

    id: UUID
    account_id: UUID
    seq: int
    type: str
    occurred_at: datetime
    payload: str


_NEW_EVENTS = _SQL.rows("new_events", TailedEvent)


def follow(
    settings: Settings, *, account: str | None, after: int | None, ends: float | None
) -> Iterator[dict[str, Any]]:
    """Yield new events until `ends` (monotonic seconds; None: without end), starting after sequence number `after`."""
    wanted = None if account is None else ids.parse_id(ids.Kind.ACCOUNT, account)
    assert settings.database_url is not None
    with asyncio.Runner() as runner:
        connection = runner.run(postgres.connect(settings.database_url, name="ops tail"))
        try:
            since = 0 if after is not None else clock.milliseconds(clock.now())
            seen: dict[UUID, None] = {}
            while ends is None or time.monotonic() < ends:
                rows = runner.run(_NEW_EVENTS.fetch(connection, ids.floor_of(since - LOOK_BACK_MS), wanted, after or 0))
                for row in rows:
                    if row.id not in seen and ids.milliseconds_of(row.id) >= since - LOOK_BACK_MS:
                        seen[row.id] = None
                        yield _shown(row)
                if rows:
                    since = max(since, ids.milliseconds_of(rows[-1].id))
                for old in [one for one in seen if ids.milliseconds_of(one) < since - 2 * LOOK_BACK_MS]:
                    del seen[old]
                runner.run(asyncio.sleep(EVERY_S))
        finally:
            runner.run(connection.close())


def _shown(row: TailedEvent) -> dict[str, Any]:
    payload = json.loads(row.payload)
    return {
        "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
        "seq": row.seq,
        "id": ids.format_id(ids.Kind.EVENT, row.id),
        "type": row.type,
        "createdAt": clock.iso(row.occurred_at),
        "messageId": payload["messageId"],
        "detail": payload["detail"],
    }
