"""`ops bench --billing`: payment events over HTTP, shuffled years of them, invoices as PDF, the check of a history.

Events come at a fixed rate, each with an effect: a paid checkout with its invoice. Then many copies of one event come
at once, and a year of events is played in many orders, which all have to end in the same state.
"""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import aiohttp
import msgspec
import orjson
from rich.console import Console
from rich.table import Table

from engine.accounts.billing import invoice_pdf
from engine.accounts.billing.checkout import open_checkout
from engine.accounts.billing.configuration import Billing, configured, payprov_secrets
from engine.accounts.billing.providers import signatures
from engine.accounts.billing.rows import BillingProfileRow, CheckoutRow, InvoiceRow
from engine.base import clock, ids, settings
from engine.base.ids import Kind
from engine.base.plans import Plan
from engine.ledger import billing_history
from engine.people.account import store as accounts
from engine.store.queries import Queries
from loadtests.bench import figures, payment_year, report
from loadtests.bench.run_control import FAILURES, machine_lock
from loadtests.bench.service import BenchService, own_service

RATE: Final = 30.0  # events per second
COPIES: Final = 500
ORDERS: Final = 200
HISTORY: Final = 10_000  # events
LINES: Final = 40  # of an invoice
TIMES: Final = 50  # renderings, and checks of a history
MARKS_MS: Final = {"payment event": ("p99", 30), "invoice as PDF": ("p95", 20), "check of a history": ("p95", 100)}
_SQL = Queries.beside(__file__, "billing.sql")
_INVOICES = _SQL.command("count_invoices")
_AT_ONCE: Final = 8  # years that are played, and checkouts that are opened
_WARM_UP: Final = 50
_BUYER: Final = BillingProfileRow("Müller & Söhne GmbH", "DE", "Allee 1\n10115 Berlin", None, None)


def run(*, events: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 if every event had its one effect and all orders ended alike."""
    progress = report.Progress()
    try:
        with machine_lock(progress.say):
            result = asyncio.run(_measure(events, progress))
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    _show(result, as_json=as_json)
    return 0 if result["checked"] else 1


async def _measure(events: int, progress: report.Progress) -> dict[str, Any]:
    given = msgspec.structs.replace(settings.load(os.environ).settings, processes=("api",))
    async with own_service(given, progress.say, delivering=False, tls=False) as service:
        billing = configured(service.settings)
        base = f"http://{service.settings.api_host}:{service.settings.api_port}"
        connector = aiohttp.TCPConnector(limit=COPIES)
        async with aiohttp.ClientSession(base, connector=connector, trust_env=False) as client:
            provider = EventSender(client, service)
            checkouts = await _checkouts(service, billing, events + _WARM_UP + 1)
            await provider.pay_many(checkouts[:_WARM_UP])
            progress.say(f"Sending {events:,} payment events, {RATE:g} a second")
            times = await provider.pay_many(checkouts[_WARM_UP:-1])
            progress.say(f"Sending {COPIES} copies of an event at once")
            await asyncio.gather(*[provider.pay(checkouts[-1], "copied") for _ in range(COPIES)])
        invoices = int((await _INVOICES.records(service.pool))[0]["invoices"])
        progress.say(f"Playing {ORDERS} years of payment events")
        ends = set(await payment_year.play_all(service.pool, billing, range(ORDERS), _AT_ONCE))
        progress.say(f"Rendering invoices of {LINES} lines, checking a history of {HISTORY:,} events")
        checks = await _history_s(service)
    found = {
        "payment event": figures.percentiles(times),
        "invoice as PDF": figures.percentiles(_pdf_s()),
        "check of a history": figures.percentiles(checks),
    }
    expected = events + _WARM_UP + 1
    return {
        "mode": "billing",
        "ms": found,
        "marks_ms": {name: f"{part} {mark}" for name, (part, mark) in MARKS_MS.items()},
        "invoices": {"expected": expected, "found": invoices},
        "answers": dict(provider.statuses),
        "end_states": len(ends),
        "checked": invoices == expected
        and set(provider.statuses) == {200}
        and len(ends) == 1
        and all(e.chain_is_valid for e in ends),
    }


class EventSender:
    """Sends signed events to the service; lives for one measurement."""

    def __init__(self, client: aiohttp.ClientSession, service: BenchService) -> None:
        self._client = client
        self._secret = payprov_secrets(service.settings)[0]
        self.statuses: Counter[int] = Counter()

    async def pay_many(self, checkouts: list[CheckoutRow]) -> list[float]:
        """Report that checkouts were paid, at a fixed rate; return the seconds that each answer took."""
        began, times = time.monotonic(), []

        async def timed(row: CheckoutRow) -> None:
            sent = time.perf_counter()
            await self.pay(row, row.id.hex)
            times.append(time.perf_counter() - sent)

        async with asyncio.TaskGroup() as tasks:
            for number, row in enumerate(checkouts):
                await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
                tasks.create_task(timed(row))
        return times

    async def pay(self, row: CheckoutRow, event: str) -> None:
        """Report that a checkout was paid."""
        at = clock.now()
        data = {"checkout": ids.format_id(Kind.CHECKOUT, row.id), "amount": row.amount, "currency": row.currency}
        body = orjson.dumps({"id": event, "type": "checkout.succeeded", "createdAt": clock.iso(at), "data": data})
        headers = {
            "Content-Type": "application/json",
            "Payprov-Signature": signatures.sign(self._secret, body, at),
        }
        async with self._client.post("/v1/billing/payprov/webhook", data=body, headers=headers) as answer:
            await answer.read()
            self.statuses[answer.status] += 1


async def _checkouts(service: BenchService, billing: Billing, count: int) -> list[CheckoutRow]:
    """Open a checkout on each of so many new accounts."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one() -> CheckoutRow:
        async with places:
            account = await _account(service)
            opened = await open_checkout(
                service.pool, account, Plan.STARTER.value, "month", _BUYER, billing=billing, actor="bench"
            )
            assert opened.checkout is not None
            return opened.checkout

    return list(await asyncio.gather(*[one() for _ in range(count)]))


async def _account(service: BenchService) -> UUID:
    account = ids.uuid7()
    async with service.pool.acquire() as connection, connection.transaction():
        await accounts.insert(connection, account, name="Buyer", plan=Plan.FREE, daily_cap=None, monthly_cap=None)
    return account


async def _history_s(service: BenchService) -> list[float]:
    """Write a history and return the seconds of each check of its whole chain."""
    account, at = await _account(service), clock.now()
    for _ in range(HISTORY // 100):
        async with service.pool.acquire() as connection, connection.transaction():
            await billing_history.append(connection, account, [("invoice.issued", {"total": 1_900})] * 100, at)
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        verdict = await billing_history.verify(service.pool, account)
        times.append(time.perf_counter() - began)
        assert verdict.valid
    return times


def _pdf_s() -> list[float]:
    """Return the seconds of rendering an invoice, without the first one, which loads the library."""
    row, times = _invoice(), []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        invoice_pdf.render(row)
        times.append(time.perf_counter() - began)
    return times[1:]


def _invoice() -> InvoiceRow:
    at = datetime(2026, 11, 22, tzinfo=UTC)
    lines = [{"description": f"Waybill Growth, one month, part {number}", "amount": 100} for number in range(LINES)]
    return InvoiceRow(
        id=UUID(int=1), account_id=UUID(int=2), number="WB-2026-000001", kind="invoice", status="paid", issued_at=at,
        period_start=at, period_end=at + timedelta(days=30), plan="growth", billing_interval="month", currency="EUR",
        subtotal=100 * LINES, tax=19 * LINES, total=119 * LINES, tax_rate="0.19", reverse_charge=False,
        lines=orjson.dumps(lines).decode(), seller='{"name": "Seller GmbH", "address": "Allee 1\\nBerlin"}',
        buyer=orjson.dumps(msgspec.to_builtins(_BUYER)).decode(), corrects=None,
    )  # fmt: skip


def _show(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("", "p50 ms", "p95 ms", "p99 ms", "mark"):
        table.add_column(title, justify="right" if title else "left")
    for name, times in result["ms"].items():
        table.add_row(name, *map(str, (times or {}).values()), result["marks_ms"][name])
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"invoices {result['invoices']}; {ORDERS} orders of a year's events: {result['end_states']} end state; "
        f"checked: {result['checked']}"
    )
