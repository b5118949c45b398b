"""Invoices and billing histories are kept ten years, also those of erased accounts, and deleted then."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
from msgspec import structs

from engine.accounts.account_deletion import close_account
from engine.accounts.billing import store as billing
from engine.accounts.billing.periods import add_months
from engine.accounts.billing.types import HistoryType
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.ledger import billing_history
from engine.ledger.billing_history import BillingChainVerdict
from engine.retention import erase, purge_billing
from engine.store.postgres import open_pool
from ops.commands import account as operator
from tests.accounts.billing.test_invoice_pdf import invoice
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account

SOLD = add_months(clock.now(), -100)
TEN_YEARS_LATER = add_months(SOLD, 120)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
async def own_pool(lasting_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    """A database of this module's own: old records of all accounts are deleted."""
    opened = await open_pool(await lasting_database(), name="tests", largest=4)
    yield opened
    await opened.close()


async def sell(pool: asyncpg.Pool, account: UUID, *times: datetime) -> list[str]:
    """Write an invoice, a payment event and an event of the history at each time; return the invoices' numbers."""
    numbers = []
    for at in times:
        number = f"WB-{at.year}-{ids.uuid7().hex}"
        row = structs.replace(
            invoice("Ann"), id=ids.uuid7(clock.milliseconds(at)), account_id=account, number=number, issued_at=at
        )
        async with pool.acquire() as connection, connection.transaction():
            await billing.insert_invoice(connection, row)
            await billing_history.append(connection, account, [(HistoryType.INVOICE_ISSUED, {"number": number})], at)
            await billing.first_time(
                connection, "payprov", number, kind="payment.succeeded", account=account, effect="", created_at=at
            )
            await connection.execute("UPDATE provider_events SET received_at = $2 WHERE event_id = $1", number, at)
        numbers.append(number)
    return numbers


async def kept(pool: asyncpg.Pool, account: UUID) -> tuple[int, int, int]:
    """Count the account's invoices, payment events and events of the history."""
    counts = [
        await pool.fetchval(f"SELECT count(*) FROM {table} WHERE account_id = $1", account)
        for table in ("invoices", "provider_events", "billing_events")
    ]
    return (counts[0], counts[1], counts[2])


async def test_the_operator_reads_the_invoices_of_an_erased_account_for_ten_years(
    own_pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(own_pool)
    [number] = await sell(own_pool, account.id, SOLD)
    await close_account.schedule(own_pool, account.id, actor="operator")
    await own_pool.execute("UPDATE deletions SET due_at = now() - interval '1 second'")
    assert await erase.erase_due(own_pool, clock.now(), hold_known_s=0.01) == [account.id]

    await purge_billing.purge(own_pool, TEN_YEARS_LATER - DAY)
    written = await operator.write_invoice(own_pool, name=number, out=tmp_path / "invoice.pdf")
    shown = await operator.billing_of(own_pool, account=account.public_id)

    assert (tmp_path / "invoice.pdf").read_bytes().startswith(b"%PDF-")
    assert written["accountId"] == account.public_id
    assert [one["number"] for one in shown["invoices"]] == [number]
    assert shown["history"]["valid"]
    assert [one["id"] for one in shown["paymentEvents"]] == [number]

    assert await purge_billing.purge(own_pool, TEN_YEARS_LATER + DAY) >= 3
    assert await kept(own_pool, account.id) == (0, 0, 0)
    assert await own_pool.fetchval("SELECT count(*) FROM billing_heads WHERE account_id = $1", account.id) == 0
    with pytest.raises(Refusal) as refused:
        await operator.write_invoice(own_pool, name=number, out=None)
    assert refused.value.kind is ErrorType.NOT_FOUND


async def test_the_rest_of_a_shortened_history_is_verified_and_read(own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool)
    await sell(own_pool, account.id, SOLD, SOLD + DAY, SOLD + 2 * DAY, SOLD + 3 * DAY)

    await purge_billing.purge(own_pool, TEN_YEARS_LATER + DAY + DAY / 2)

    assert await kept(own_pool, account.id) == (2, 2, 2)
    assert await billing_history.verify(own_pool, account.id) == BillingChainVerdict(valid=True)
    for after, expected in ((0, [3, 4]), (1, [3, 4]), (2, [3, 4]), (3, [4]), (4, [])):
        rows, previous = await billing_history.page(own_pool, account.id, after, 5)
        assert [row.seq for row in rows] == expected
        assert len(previous) == 32
    await own_pool.execute("DELETE FROM billing_events WHERE account_id = $1 AND seq = 3", account.id)
    assert (await billing_history.verify(own_pool, account.id)).broken_at == 3


async def test_an_old_event_behind_a_younger_one_waits(own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool)
    await sell(own_pool, account.id, SOLD, SOLD + 9 * DAY, SOLD)

    await purge_billing.purge(own_pool, TEN_YEARS_LATER + DAY)

    rows, _ = await billing_history.page(own_pool, account.id, 0, 5)
    assert [row.seq for row in rows] == [2, 3]
    assert (await billing_history.verify(own_pool, account.id)).valid


async def test_a_deletion_goes_on_where_its_budget_ended(
    own_pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = await make_account(own_pool)
    await sell(own_pool, account.id, *[SOLD] * 5)
    monkeypatch.setattr(purge_billing, "MAX_ROWS", 2)

    assert await purge_billing.purge(own_pool, TEN_YEARS_LATER + DAY, budget_s=0) == 0
    await purge_billing.purge(own_pool, TEN_YEARS_LATER + DAY)

    assert await kept(own_pool, account.id) == (0, 0, 0)
    assert (await billing_history.verify(own_pool, account.id)).valid
    rows, _ = await billing_history.page(own_pool, account.id, 0, 5)
    assert rows == []


async def test_a_rewritten_end_of_the_chain_is_noticed(own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool)
    await sell(own_pool, account.id, SOLD)
    forged = await make_account(own_pool)
    await sell(own_pool, forged.id, SOLD)
    await own_pool.execute("DELETE FROM billing_events WHERE account_id = $1", account.id)
    await own_pool.execute("UPDATE billing_events SET account_id = $1 WHERE account_id = $2", account.id, forged.id)

    verdict = await billing_history.verify(own_pool, account.id)

    assert (verdict.valid, verdict.broken_at) == (False, 1)
