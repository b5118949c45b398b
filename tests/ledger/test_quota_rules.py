"""Plan steps, months and counts, on an account head alone."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from engine.base.errors import ErrorType
from engine.base.plans import CAPS, DAILY_ALLOWANCES, Plan
from engine.ledger import quota
from engine.ledger.heads import AccountHead

TODAY = date(2026, 11, 20)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TOP = len(DAILY_ALLOWANCES) - 1

rungs = st.integers(0, TOP)
counts = st.integers(0, 200_000)
days = st.dates(date(2020, 1, 1), date(2040, 1, 1))


def head(
    *,
    rung: int = 0,
    day: date = TODAY,
    sent_today: int = 0,
    month: date = date(2026, 11, 1),
    sent_this_month: int = 0,
    plan: str = "growth",
    daily_cap: int | None = None,
    monthly_cap: int | None = None,
) -> AccountHead:
    return AccountHead(
        UUID(int=1), 0, bytes(32), rung, day, sent_today, month, sent_this_month, plan, "active", daily_cap, monthly_cap
    )


# -- the review -------------------------------------------------------------------------------


@given(rungs, counts, counts, counts, st.integers(0, 100_000))
def test_a_review_moves_one_rung_at_most_and_stays_on_the_ladder(
    rung: int, sent: int, bounced: int, complained: int, cap: int
) -> None:
    after = quota.reviewed_rung(rung, sent=sent, bounced=bounced, complained=complained, cap=cap)

    assert abs(after - rung) <= 1
    assert 0 <= after <= TOP


@given(rungs, st.integers(1, 200_000), counts, counts, st.integers(0, 1_000))
def test_more_bounces_never_help(rung: int, sent: int, bounced: int, complained: int, more: int) -> None:
    cap = DAILY_ALLOWANCES[rung]
    few = quota.reviewed_rung(rung, sent=sent, bounced=bounced, complained=complained, cap=cap)
    many = quota.reviewed_rung(rung, sent=sent, bounced=bounced + more, complained=complained, cap=cap)
    loud = quota.reviewed_rung(rung, sent=sent, bounced=bounced, complained=complained + more, cap=cap)

    assert many <= few
    assert loud <= few


@pytest.mark.parametrize(
    ("sent", "bounced", "complained", "after"),
    [
        (800, 0, 0, 4),  # exactly four fifths
        (799, 0, 0, 3),
        (1_000, 50, 0, 4),  # exactly 5% bounced still rises
        (1_000, 51, 0, 3),
        (1_000, 100, 0, 3),  # exactly 10% does not fall yet
        (1_000, 101, 0, 2),
        (1_000, 0, 1, 4),  # exactly 0.1% complained still rises
        (1_000, 0, 2, 3),
        (1_000, 0, 3, 3),  # exactly 0.3% does not fall yet
        (1_000, 0, 4, 2),
        (1, 1, 0, 2),
        (0, 5, 5, 3),  # outcomes of older mail: a day without sends is not judged
    ],
)
def test_the_bounds_of_a_review(sent: int, bounced: int, complained: int, after: int) -> None:
    assert quota.reviewed_rung(3, sent=sent, bounced=bounced, complained=complained, cap=1_000) == after


def test_an_agreed_cap_is_what_four_fifths_are_taken_of() -> None:
    one = head(rung=2, day=TODAY - timedelta(days=1), sent_today=500, daily_cap=10_000)
    quota.advance_to(one, TODAY)

    assert one.rung == 2  # 500 would have used the rung up, not the agreement


# -- turning ----------------------------------------------------------------------------------


@given(rungs, counts, counts, days, st.integers(0, 800), counts, counts)
def test_turning_twice_is_turning_once(
    rung: int, sent: int, monthly: int, day: date, later: int, bounced: int, complained: int
) -> None:
    one = head(rung=rung, day=day, sent_today=sent, month=day.replace(day=1), sent_this_month=monthly)
    to = day + timedelta(days=later)
    quota.advance_to(one, to, bounced=bounced, complained=complained)
    once = asdict(one)
    quota.advance_to(one, to, bounced=bounced, complained=complained)

    assert asdict(one) == once
    assert (one.day, one.month) == (to, to.replace(day=1))
    assert one.sent_today == (sent if later == 0 else 0)
    assert one.sent_this_month == (monthly if day.replace(day=1) == to.replace(day=1) else 0)
    if later != 1:
        assert one.rung == rung  # only the day after is a review


def test_a_new_day_within_the_month_keeps_the_months_count() -> None:
    one = head(day=TODAY - timedelta(days=1), sent_today=40, sent_this_month=400)
    quota.advance_to(one, TODAY)

    assert (one.sent_today, one.sent_this_month) == (0, 400)


def test_the_last_day_of_a_month_is_reviewed_on_the_first_of_the_next() -> None:
    one = head(rung=0, day=date(2026, 11, 30), sent_today=50, sent_this_month=900)
    quota.advance_to(one, date(2026, 12, 1))

    assert (one.rung, one.sent_today, one.sent_this_month, one.month) == (1, 0, 0, date(2026, 12, 1))


def test_a_head_ahead_of_our_clock_is_left_alone() -> None:
    tomorrow = TODAY + timedelta(days=1)
    one = head(rung=3, day=tomorrow, sent_today=7, month=date(2026, 12, 1), sent_this_month=7)
    before = asdict(one)
    quota.advance_to(one, TODAY, bounced=1_000)

    assert asdict(one) == before


def test_only_the_day_before_is_due_for_review() -> None:
    assert quota.due_for_review(head(day=TODAY - timedelta(days=1)), TODAY)
    for away in (0, 2, 30, -1):
        assert not quota.due_for_review(head(day=TODAY - timedelta(days=away)), TODAY)


# -- taking -----------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 100))
def test_no_more_is_taken_than_either_cap_allows(
    sent: int, monthly: int, daily_cap: int, monthly_cap: int, tries: int
) -> None:
    one = head(sent_today=sent, sent_this_month=monthly, daily_cap=daily_cap, monthly_cap=monthly_cap)
    taken = sum(quota.take(one, NOON) is None for _ in range(tries))

    assert taken == min(tries, max(0, daily_cap - sent), max(0, monthly_cap - monthly))
    assert (one.sent_today, one.sent_this_month) == (sent + taken, monthly + taken)


def test_the_daily_limit_is_told_first_with_its_numbers() -> None:
    refusal = quota.take(head(sent_today=50, sent_this_month=750, plan="free"), NOON)

    assert refusal is not None
    assert refusal.kind is ErrorType.DAILY_LIMIT_REACHED
    assert refusal.fields == {"limit": 50, "sentToday": 50}
    assert refusal.retry_after_s == 43_200


def test_the_monthly_limit_waits_for_the_first() -> None:
    refusal = quota.take(head(sent_this_month=750, plan="free"), datetime(2026, 11, 30, 23, tzinfo=UTC))

    assert refusal is not None
    assert refusal.kind is ErrorType.MONTHLY_LIMIT_REACHED
    assert refusal.fields == {"limit": 750, "sentThisMonth": 750}
    assert refusal.retry_after_s == 3_600


def test_what_is_given_back_was_never_counted() -> None:
    one = head(sent_today=3, sent_this_month=9)
    assert quota.take(one, NOON) is None
    quota.untake(one)

    assert (one.sent_today, one.sent_this_month) == (3, 9)


@pytest.mark.parametrize("plan", list(Plan))
def test_an_agreement_stands_above_plan_and_ladder(plan: Plan) -> None:
    assert quota.monthly_cap(head(plan=plan.value)) == CAPS[plan].monthly_emails
    floor = CAPS[plan].monthly_emails if plan is Plan.ENTERPRISE else 0
    assert quota.monthly_cap(head(plan=plan.value, monthly_cap=7)) == max(7, floor)
    assert quota.monthly_cap(head(plan=plan.value, monthly_cap=2_000_000)) == 2_000_000
    below = replace(head(plan=plan.value, monthly_cap=7), parent_id=UUID(int=2))
    assert quota.monthly_cap(below, head(plan=plan.value)) == 7, "a sub-account's limit is its parent's to set"
    assert quota.daily_cap(head(rung=4)) == DAILY_ALLOWANCES[4]
    assert quota.daily_cap(head(rung=4, daily_cap=0)) == 0


def test_the_ladder_rises() -> None:
    assert list(DAILY_ALLOWANCES) == sorted(set(DAILY_ALLOWANCES))


def test_the_platforms_refusal_names_no_account() -> None:
    refusal = quota.platform_refusal()

    assert refusal.kind is ErrorType.PLATFORM_PAUSED
    assert refusal.fields == {}
    assert refusal.retry_after_s
