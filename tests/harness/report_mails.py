"""Report mails in tests: made, stored and read back."""

from datetime import datetime

import asyncpg

from engine.areas.reports import store
from engine.areas.reports.types import ReportMail, ReportPurpose
from engine.base import clock


def mail(
    raw: bytes,
    *,
    local: str,
    purpose: ReportPurpose = ReportPurpose.BOUNCE,
    host: str = "bounces.mail.test",
    at: datetime | None = None,
) -> ReportMail:
    """A report mail as the MX hands it over."""
    return ReportMail(
        purpose=purpose,
        local=local,
        host=host,
        sender="",
        remote_ip="192.0.2.1",
        received_at=at or clock.now(),
        raw=raw,
    )


async def add(pool: asyncpg.Pool, *mails: ReportMail) -> None:
    """Store report mails as the MX does."""
    async with pool.acquire() as connection, connection.transaction():
        await store.add(connection, mails)


async def stored(pool: asyncpg.Pool, local: str) -> list[asyncpg.Record]:
    """The stored mails to a local part, oldest first."""
    rows: list[asyncpg.Record] = await pool.fetch("SELECT * FROM report_mails WHERE local = $1 ORDER BY id", local)
    return rows
