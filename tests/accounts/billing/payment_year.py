"""Play a year of a monthly subscription whose payment events arrive late, repeated and in another order each time.

Every event is caused as by a real provider: a checkout is tried twice; each renewal is asked for when its period ends,
fails twice and then succeeds; a payment is refunded in two parts; at last the provider cancels. Only the deliveries
vary, by up to four days, and copies by forty. The end state has to be the same for every order.
"""

import asyncio
import heapq
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts.billing import end_periods as billing_periods
from engine.accounts.billing import payment_events, store
from engine.accounts.billing.configuration import Billing
from engine.accounts.billing.periods import BillingInterval, period
from engine.accounts.billing.providers.payprov import Payprov
from engine.accounts.billing.rows import CheckoutRow
from engine.accounts.billing.types import ProviderEvent, ProviderEventType
from engine.base import ids
from engine.base.plans import Plan
from engine.ledger import billing_history
from engine.people.account import store as accounts
from engine.store.queries import Queries

START: Final = datetime(2027, 1, 31, 10, 30, tzinfo=UTC)
PERIODS: Final = 12  # after the first
PRICE: Final = 1_900
REFUNDED_PERIOD: Final = 3
MAX_DELAY_S: Final = 4 * 86_400  # so that every payment arrives within the grace period
MAX_COPY_DELAY_S: Final = 40 * 86_400
MAX_COPIES: Final = 3
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
_BUYER: Final = '{"legal_name":"Bench","country":"DE","address":null,"tax_id":null,"email":null}'

_SQL = Queries.beside(__file__, "payment_year.sql")
_INVOICES = _SQL.command("invoices_without_ids")
_STATE = _SQL.command("end_state")


class YearEnd(Struct, frozen=True):
    """The state after a year, without ids and times of processing."""

    subscription: tuple[Any, ...]
    invoices: tuple[tuple[Any, ...], ...]
    chain_is_valid: bool


class EventArrival(Struct, frozen=True, order=True):
    """An event's arrival, or a look of the worker where there is none."""

    at: datetime
    number: int
    event: ProviderEvent | None = None


async def play(pool: asyncpg.Pool, billing: Billing, seed: int) -> YearEnd:
    """Play a year on a new account and return its end state."""
    account = await _account(pool)
    checkout = await _checkout(pool, account)
    provider = Payprov("http://payprov.test", ("bench",))
    agenda: list[EventArrival] = []
    for delivery in _deliveries(account, checkout, random.Random(seed)):
        heapq.heappush(agenda, delivery)
    while agenda:
        due = heapq.heappop(agenda)
        if due.event is None:
            await billing_periods.end_period(pool, account, due.at, billing)
        else:
            await payment_events.apply(pool, provider, due.event, billing, at=due.at)
    return await _end(pool, account)


async def play_all(pool: asyncpg.Pool, billing: Billing, seeds: Sequence[int], at_once: int) -> list[YearEnd]:
    """Play a year for each seed, several at once."""
    places = asyncio.Semaphore(at_once)

    async def one(seed: int) -> YearEnd:
        async with places:
            return await play(pool, billing, seed)

    async with asyncio.TaskGroup() as tasks:
        played = [tasks.create_task(one(seed)) for seed in seeds]
    return [task.result() for task in played]


def _deliveries(account: UUID, checkout: UUID, rng: random.Random) -> Iterator[EventArrival]:
    number = 0
    for event in _events(account, checkout):
        delay = rng.uniform(0, MAX_DELAY_S)
        for _ in range(rng.randint(1, MAX_COPIES)):
            number += 1
            yield EventArrival(event.created_at + timedelta(seconds=delay), number, event)
            delay = rng.uniform(0, MAX_COPY_DELAY_S)
    for place in range(PERIODS):
        end = period(START, BillingInterval.MONTH, place).end
        for look in (end, end + 2 * HOUR, end + 6 * DAY):
            number += 1
            yield EventArrival(look, number)


def _events(account: UUID, checkout: UUID) -> Iterator[ProviderEvent]:
    """Yield the events of the year in the order in which they are caused."""
    yield _event(ProviderEventType.CHECKOUT_FAILED, START - HOUR, checkout=checkout)
    yield _event(ProviderEventType.CHECKOUT_SUCCEEDED, START, checkout=checkout, amount=PRICE)
    for place in range(PERIODS):
        end = period(START, BillingInterval.MONTH, place).end
        about = {"account": account, "period_start": end}
        for wait in (HOUR, DAY):
            yield _event(ProviderEventType.PAYMENT_FAILED, end + wait, **about)
        yield _event(ProviderEventType.PAYMENT_SUCCEEDED, end + 2 * DAY, amount=PRICE, **about)
        if place == REFUNDED_PERIOD:
            for amount in (700, PRICE - 700):
                yield _event(ProviderEventType.REFUND_SUCCEEDED, end + 2 * DAY + HOUR, amount=amount, **about)
    canceled_at = period(START, BillingInterval.MONTH, PERIODS).start + 10 * DAY
    yield _event(ProviderEventType.SUBSCRIPTION_CANCELED, canceled_at, account=account)


def _event(kind: ProviderEventType, at: datetime, **about: Any) -> ProviderEvent:
    return ProviderEvent(id=ids.uuid7().hex, type=kind, created_at=at, currency="EUR", **about)


async def _account(pool: asyncpg.Pool) -> UUID:
    account = ids.uuid7()
    async with pool.acquire() as connection, connection.transaction():
        await accounts.insert(connection, account, name="Year", plan=Plan.FREE, daily_cap=None, monthly_cap=None)
    return account


async def _checkout(pool: asyncpg.Pool, account: UUID) -> UUID:
    """Store the checkout that is paid, as it was opened at START."""
    row = CheckoutRow(
        id=ids.uuid7(), account_id=account, plan=Plan.STARTER.value, billing_interval="month", currency="EUR",
        price=PRICE, credit=0, tax=0, tax_rate="0", reverse_charge=False, amount=PRICE, buyer=_BUYER, status="open",
        provider=Payprov.name, url=None, created_at=START - DAY, expires_at=START + DAY,
    )  # fmt: skip
    async with pool.acquire() as connection, connection.transaction():
        await store.insert_checkout(connection, row)
    return row.id


async def _end(pool: asyncpg.Pool, account: UUID) -> YearEnd:
    state = [tuple(row.values()) for row in await _STATE.records(pool, account)]
    invoices = [tuple(row.values()) for row in await _INVOICES.records(pool, account)]
    verdict = await billing_history.verify(pool, account)
    return YearEnd(state[0], tuple(invoices), verdict.valid)
