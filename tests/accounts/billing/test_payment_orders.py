"""Payment events that come late, repeated, and before those that caused them."""

import asyncpg
import pytest
from msgspec import structs

from engine.accounts.billing.configuration import Billing, configured
from engine.accounts.billing.periods import BillingInterval, period
from engine.base.settings import Settings
from tests.accounts.billing import payment_year
from tests.accounts.billing.payment_year import PERIODS, PRICE, START, YearEnd

ORDERS = 6


@pytest.fixture(scope="module")
def billing(settings: Settings) -> Billing:
    return configured(structs.replace(settings, prices=f"starter:month:EUR={PRICE}", seller_name="Seller"))


@pytest.mark.exhaustive
async def test_a_year_of_events_in_any_order_ends_in_the_same_state(pool: asyncpg.Pool, billing: Billing) -> None:
    ends = await payment_year.play_all(pool, billing, range(ORDERS), at_once=3)

    first: YearEnd = ends[0]
    assert set(ends) == {first}
    assert first.chain_is_valid
    plan, subscribed, status, anchor, number, credit, canceled, *_, paid, _events, waiting = first.subscription
    assert (plan, subscribed, status, anchor, number) == ("starter", "starter", "active", START, PERIODS)
    assert (credit, canceled, paid, waiting) == (0, True, PERIODS, 0)
    issued = [one for one in first.invoices if one[0] == "invoice"]
    assert [one[2] for one in issued] == [
        period(START, BillingInterval.MONTH, place).start for place in range(PERIODS + 1)
    ]
    assert sum(one[6] for one in first.invoices) == PERIODS * PRICE  # 13 payments, one of them refunded
