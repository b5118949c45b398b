"""`ops reports`: what came in, and why it had no effect."""

import asyncpg
import pytest

from engine.base import ids
from engine.base.errors import Refusal
from engine.receiving.reports import store
from engine.receiving.reports.types import ReportPurpose, ReportResult, ReportState
from ops.commands import reports
from tests.harness.report_mails import add, mail, stored


async def test_a_report_is_listed_with_its_reason_and_shown_with_its_bytes(pool: asyncpg.Pool) -> None:
    local = f"dmarc+{ids.uuid7().hex}"
    await add(pool, mail(b"Subject: \xff\r\n\r\nbody", local=local, purpose=ReportPurpose.DMARC))
    (row,) = await stored(pool, local)
    why = ReportResult(id=row["id"], state=ReportState.UNREADABLE, result="no_report", reason="Not XML.")
    await store.finish(pool, [why])

    listed = await reports.listed(pool, state="unreadable", purpose="dmarc", limit=1000)
    (shown,) = [one for one in listed if one["id"] == str(row["id"])]
    assert (shown["to"], shown["from"], shown["ip"]) == (f"{local}@bounces.mail.test", "<>", "192.0.2.1")
    assert (shown["result"], shown["reason"]) == ("no_report", "Not XML.")
    assert not [one for one in await reports.listed(pool, state="waiting", purpose=None, limit=1000) if one == shown]
    assert await reports.opened(pool, row["id"]) == (shown, b"Subject: \xff\r\n\r\nbody")
    assert [one for one in await reports.counts(pool) if one["result"] == "no_report"]
    with pytest.raises(Refusal):
        await reports.opened(pool, ids.uuid7())
