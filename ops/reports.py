"""Implementation of `ops reports`: the report mails that the MX stored, and what became of each."""

from typing import Any
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.receiving.reports import store
from engine.receiving.reports.types import ReportRow


async def counts(pool: asyncpg.Pool) -> list[dict[str, Any]]:
    """Count the stored reports by purpose, state and result."""
    return [structs.asdict(one) | {"oldest": clock.iso(one.oldest)} for one in await store.counts(pool)]


async def listed(pool: asyncpg.Pool, *, state: str | None, purpose: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest reports."""
    rows = await store.page(pool, before=None, state=state, purpose=purpose, limit=limit)
    return [_shown(row) for row in rows]


async def opened(pool: asyncpg.Pool, report: UUID) -> tuple[dict[str, Any], bytes | None]:
    """Return one report and the bytes of its mail, None if they are not kept."""
    row = await store.read_row(pool, report)
    found = await store.read(pool, report)
    if row is None or found is None:
        raise not_found("report")
    return _shown(row), found.raw


def _shown(row: ReportRow) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "receivedAt": clock.iso(row.received_at),
        "to": f"{row.local}@{row.host}",
        "from": row.envelope_from or "<>",
        "ip": row.remote_ip,
        "reporter": row.reporter_address,
        "signedBy": row.signed_by,
        "size": row.size_bytes,
        "purpose": row.purpose,
        "state": row.state,
        "result": row.result,
        "reason": row.reason,
        "account": None if row.account_id is None else ids.format_id(ids.Kind.ACCOUNT, row.account_id),
        "message": None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        "tries": row.tries,
    }
