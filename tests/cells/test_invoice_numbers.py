"""Cells of one seller never issue two invoices with one number, and each series has no gap."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.accounts.billing import invoices
from engine.accounts.billing.configuration import Seller
from engine.accounts.billing.periods import BillingInterval, BillingPeriod
from engine.accounts.billing.rows import BillingProfileRow
from engine.accounts.billing.tax import TaxDecision
from engine.accounts.billing.types import InvoiceDraft, InvoiceLine
from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.cells import claims
from tests.harness.accounts import make_account

AT = datetime(2031, 3, 1, tzinfo=UTC)  # of which no other test issues invoices


@contextlib.asynccontextmanager
async def member(settings: Settings, cell: str | None) -> AsyncIterator[None]:
    """Let this process be part of a cell; None: of an installation without cells."""
    url = None if cell is None else "postgresql://directory.test/never-opened"
    claims.configure(structs.replace(settings, directory_url=url, cell=cell))
    try:
        yield
    finally:
        claims.configure(settings)


async def issued(pool: asyncpg.Pool, account: UUID) -> str:
    draft = InvoiceDraft(
        Plan.STARTER, BillingInterval.MONTH, "EUR", BillingPeriod(AT, AT), (InvoiceLine("Starter", 1_900),)
    )
    buyer = BillingProfileRow("Ann", "DE", None, None, None)
    async with pool.acquire() as connection, connection.transaction():
        row = await invoices.issue(
            connection, account, draft, TaxDecision("0", 0), seller=Seller("Seller"), buyer=buyer, payment=None, at=AT
        )
        note = await invoices.credit(connection, row, 900, AT)
    assert note.corrects == row.number
    return f"{row.number} {note.number}"


async def test_each_cell_has_a_series_of_its_own(pool: asyncpg.Pool, settings: Settings) -> None:
    account = (await make_account(pool)).id
    found = []
    for cell in (None, "one", "eu-2"):
        async with member(settings, cell):
            found.append(await issued(pool, account))

    assert found == [
        "WB-2031-000001 WB-2031-000002",
        "WB-ONE-2031-000003 WB-ONE-2031-000004",
        "WB-EU-2-2031-000005 WB-EU-2-2031-000006",
    ]
