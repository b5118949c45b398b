"""The state machine of subscriptions."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from engine.accounts.billing import subscription as changes
from engine.accounts.billing.periods import BillingInterval
from engine.accounts.billing.prices import PlanPrice
from engine.accounts.billing.types import HistoryType, PlanSubscription, SubscriptionStatus, Transition
from engine.base.plans import Plan

START = datetime(2026, 1, 31, 10, tzinfo=UTC)
STARTER = PlanPrice(Plan.STARTER, BillingInterval.MONTH, "EUR", 1_900)
STARTER_YEAR = PlanPrice(Plan.STARTER, BillingInterval.YEAR, "EUR", 19_000)
GROWTH = PlanPrice(Plan.GROWTH, BillingInterval.MONTH, "EUR", 7_900)


def bought(price: PlanPrice = STARTER) -> PlanSubscription:
    """Return a subscription whose first period begins at START."""
    return held(changes.paid_checkout(None, price, 0, START))


def held(transition: Transition | None) -> PlanSubscription:
    assert transition is not None
    assert transition.subscription is not None
    return transition.subscription


def kinds(transition: Transition) -> list[HistoryType]:
    return [entry.type for entry in transition.history]


def test_a_paid_checkout_starts_the_first_period_and_invoices_it() -> None:
    transition = changes.paid_checkout(None, STARTER, 0, START)

    assert held(transition).current.start == START
    assert held(transition).current.end == datetime(2026, 2, 28, 10, tzinfo=UTC)
    assert transition.plan is Plan.STARTER
    assert kinds(transition) == [HistoryType.STARTED]
    assert transition.invoice is not None
    assert transition.invoice.subtotal == 1_900


def test_an_upgrade_credits_the_unused_time_to_the_second() -> None:
    first = bought()
    at = START + timedelta(days=14)

    credit = changes.credit_offered(GROWTH, first, at)
    transition = changes.paid_checkout(first, GROWTH, credit, at)

    assert credit == 1_900 * 14 // 28
    assert transition.invoice is not None
    assert transition.invoice.subtotal == 7_900 - credit
    assert held(transition).anchor == at
    assert held(transition).credit == 0
    assert kinds(transition) == [HistoryType.CHANGED]


def test_credit_above_the_price_is_spent_on_the_next_invoices() -> None:
    year = bought(STARTER_YEAR)
    credit = changes.credit_offered(GROWTH, year, START)
    growth = held(changes.paid_checkout(year, GROWTH, credit, START))

    assert growth.credit == 19_000 - 7_900
    assert changes.charge_due(growth) == 0
    renewed = changes.at_period_end(growth, growth.current.end)
    assert renewed.invoice is not None
    assert renewed.invoice.subtotal == 0
    assert held(renewed).credit == 19_000 - 2 * 7_900
    assert changes.charge_due(held(renewed)) == 7_900 - 3_200


def test_a_renewal_that_was_paid_between_checkout_and_payment_is_credited() -> None:
    first = bought()
    opened = first.current.end - timedelta(hours=1)
    credit = changes.credit_offered(GROWTH, first, opened)
    renewed = held(changes.paid_renewal(first, first.current.end, first.current.end, first.current.end))

    upgraded = held(changes.paid_checkout(renewed, GROWTH, credit, renewed.current.start))

    assert upgraded.credit == 1_900 - credit


def test_a_payment_renews_once_and_keeps_the_day_of_month() -> None:
    first = bought()
    end = first.current.end

    renewed = held(changes.paid_renewal(first, end, end, end))

    assert renewed.current.start == end
    assert renewed.current.end == datetime(2026, 3, 31, 10, tzinfo=UTC)
    assert changes.paid_renewal(renewed, end, end, end) is None


def test_a_payment_before_the_end_takes_effect_at_the_end() -> None:
    first = bought()
    early = first.current.end - timedelta(days=1)

    paid = held(changes.paid_renewal(first, first.current.end, early, early))

    assert paid.current == first.current
    assert changes.paid_renewal(paid, first.current.end, early, early) is None
    moved = changes.at_period_end(paid, first.current.end)
    assert held(moved).number == 1
    assert kinds(moved) == [HistoryType.RENEWED]
    assert moved.invoice is None  # it was issued with the payment


def test_a_failed_payment_never_undoes_a_newer_success() -> None:
    first = bought()
    end = first.current.end
    renewed = held(changes.paid_renewal(first, end, end + timedelta(minutes=5), end + timedelta(minutes=6)))

    assert changes.failed_payment(renewed, end + timedelta(minutes=1), end + timedelta(minutes=7)) is None


def test_an_unpaid_plan_stays_seven_days_and_then_ends() -> None:
    first = bought()
    end = first.current.end
    failed = changes.failed_payment(first, end, end + timedelta(minutes=1))
    past_due = held(failed)

    assert past_due.status is SubscriptionStatus.PAST_DUE
    assert failed is not None
    assert failed.plan is Plan.STARTER
    assert changes.at_period_end(past_due, end + timedelta(days=7, seconds=-1)).subscription == past_due
    ended = changes.at_period_end(past_due, end + timedelta(days=7))
    assert ended.subscription is None
    assert ended.plan is Plan.FREE
    assert held(changes.paid_renewal(past_due, end, end + timedelta(days=6), end + timedelta(days=6))).status is (
        SubscriptionStatus.ACTIVE
    )


def test_a_silent_provider_makes_the_plan_past_due_after_an_hour() -> None:
    first = bought()
    end = first.current.end

    assert held(changes.at_period_end(first, end + timedelta(minutes=59))).status is SubscriptionStatus.ACTIVE
    assert held(changes.at_period_end(first, end + timedelta(hours=1))).status is SubscriptionStatus.PAST_DUE


def test_a_smaller_plan_begins_with_the_next_period() -> None:
    growth = bought(GROWTH)
    scheduled = held(changes.schedule_change(growth, STARTER))

    assert not changes.is_larger(STARTER, growth)
    assert scheduled.plan is Plan.GROWTH
    renewed = held(changes.paid_renewal(scheduled, growth.current.end, growth.current.end, growth.current.end))
    assert (renewed.plan, renewed.amount, renewed.pending) == (Plan.STARTER, 1_900, None)
    assert renewed.current.end == datetime(2026, 3, 31, 10, tzinfo=UTC)


def test_a_change_of_interval_begins_its_own_periods() -> None:
    year = bought(STARTER_YEAR)
    scheduled = held(changes.schedule_change(year, STARTER))

    renewed = held(changes.paid_renewal(scheduled, year.current.end, year.current.end, year.current.end))

    assert not changes.is_larger(STARTER, year)
    assert changes.is_larger(STARTER_YEAR, bought(STARTER))
    assert renewed.current.start == datetime(2027, 1, 31, 10, tzinfo=UTC)
    assert renewed.current.end == datetime(2027, 2, 28, 10, tzinfo=UTC)


def test_a_cancellation_holds_at_the_end_and_can_be_withdrawn_until_then() -> None:
    first = bought()
    canceled = changes.cancel(first)

    assert kinds(canceled) == [HistoryType.CANCELED]
    assert kinds(changes.cancel(held(canceled))) == []
    assert held(changes.resume(held(canceled))) == first
    assert canceled.plan is Plan.STARTER
    ended = changes.at_period_end(held(canceled), first.current.end)
    assert (ended.subscription, ended.plan, kinds(ended)) == (None, Plan.FREE, [HistoryType.ENDED])


def test_a_pause_holds_at_the_end_and_gives_the_free_plan() -> None:
    first = bought()
    paused = held(changes.at_period_end(held(changes.pause(first)), first.current.end))

    assert paused.status is SubscriptionStatus.PAUSED
    assert paused.entitled is Plan.FREE
    assert changes.next_look(paused, first.current.end) is None
    assert changes.credit_offered(STARTER, paused, first.current.end) == 0


STEPS = st.lists(
    st.sampled_from(("pay", "fail", "cancel", "pause", "resume", "smaller", "upgrade", "wait")), max_size=25
)


@given(STEPS, st.lists(st.integers(1, 40 * 24), min_size=25, max_size=25))
def test_whatever_happens_all_paid_money_is_served_or_credited(steps: list[str], hours: list[int]) -> None:
    """After any order of events the plan follows the status, and no credit is lost or made from nothing."""
    now, current = START, bought()
    paid = 1_900
    for step, wait in zip(steps, hours, strict=False):
        now += timedelta(hours=wait)
        while (moved := changes.at_period_end(current, now)).subscription != current:
            if moved.subscription is None:
                assert moved.plan is Plan.FREE
                return
            current = moved.subscription
        result = apply(step, current, now)
        if result is None:
            continue
        if result.invoice is not None:
            assert result.invoice.subtotal >= 0
            paid += result.invoice.subtotal
        if result.subscription is None:
            return
        current = result.subscription
        assert 0 <= current.credit <= paid
        assert result.plan is (Plan.FREE if current.status is SubscriptionStatus.PAUSED else current.plan)


def apply(step: str, current: PlanSubscription, at: datetime) -> Transition | None:
    match step:
        case "pay":
            return changes.paid_renewal(current, current.current.end, at, at)
        case "fail":
            return changes.failed_payment(current, at, at)
        case "upgrade":
            return changes.paid_checkout(current, GROWTH, changes.credit_offered(GROWTH, current, at), at)
        case "smaller":
            return changes.schedule_change(current, STARTER)
        case "wait":
            return None
        case _:
            change = {"cancel": changes.cancel, "pause": changes.pause, "resume": changes.resume}[step]
            return change(current)
