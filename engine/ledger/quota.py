"""Quota of one account: daily cap by reputation step, monthly allowance, and the platform's refusal. Pure.

A sub-account's messages count against its own daily cap, its own monthly limit if it has one, and the allowance of its
parent, whose head is passed as `parent`. The caller reads and writes the heads inside the transaction that locks them,
so that parallel sends are counted exactly.
"""

from datetime import date, datetime, timedelta

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.plans import CAPS, DAILY_ALLOWANCES, Plan
from engine.ledger.heads import AccountHead

USED_TO_RISE = 0.8  # share of the cap that must have been used the day before
COMPLAINTS_TO_RISE, BOUNCES_TO_RISE = 0.001, 0.05
COMPLAINTS_TO_FALL, BOUNCES_TO_FALL = 0.003, 0.10


def daily_cap(head: AccountHead) -> int:
    """Return how many messages the account may send on its head's day."""
    return DAILY_ALLOWANCES[head.rung] if head.daily_cap is None else head.daily_cap


def monthly_cap(head: AccountHead, parent: AccountHead | None = None) -> int:
    """Return how many messages the account may send in its head's month.

    A sub-account without a limit of its own has its parent's. An Enterprise agreement never lowers the plan's
    allowance.
    """
    plan = Plan(head.plan)
    if head.monthly_cap is None:
        return CAPS[plan].monthly_emails if parent is None else monthly_cap(parent)
    if plan is Plan.ENTERPRISE and head.parent_id is None:
        return max(head.monthly_cap, CAPS[plan].monthly_emails)
    return head.monthly_cap


def reviewed_rung(rung: int, *, sent: int, bounced: int, complained: int, cap: int, settled: int = 0) -> int:
    """Return the daily-cap step after a review of one day: one up, one down, or unchanged.

    `sent` counts messages; the others count recipients. Rates are shares of the recipients, of which there is at least
    one per message even before they are settled.
    """
    if sent == 0:
        return rung
    recipients = max(sent, settled)
    bounces, complaints = bounced / recipients, complained / recipients
    if complaints > COMPLAINTS_TO_FALL or bounces > BOUNCES_TO_FALL:
        return max(0, rung - 1)
    if sent >= USED_TO_RISE * cap and complaints <= COMPLAINTS_TO_RISE and bounces <= BOUNCES_TO_RISE:
        return min(len(DAILY_ALLOWANCES) - 1, rung + 1)
    return rung


def due_for_review(head: AccountHead, day: date) -> bool:
    """Return True on the first send of `day` if the account sent on the day before; after idle days the step is
    unchanged.
    """
    return head.day == day - timedelta(days=1)


def advance_to(
    head: AccountHead, day: date, *, bounced: int = 0, complained: int = 0, settled: int = 0, simulated: int = 0
) -> None:
    """Advance the head to `day`: review the day before if there is a new day, reset the count if there is a new
    month.

    `bounced`, `complained` and `settled` count recipients of the day before, without simulated ones; `simulated` counts
    messages to the simulator alone, which do not earn a higher cap. A head ahead of `day` (another host's clock) is
    left unchanged.
    """
    if head.day < day:
        if due_for_review(head, day):
            head.rung = reviewed_rung(
                head.rung,
                sent=max(0, head.sent_today - simulated),
                bounced=bounced,
                complained=complained,
                cap=daily_cap(head),
                settled=settled,
            )
        head.day = day
        head.sent_today = 0
    month = clock.first_of_month(day)
    if head.month < month:
        head.month = month
        head.sent_this_month = 0


def take(head: AccountHead, at: datetime, parent: AccountHead | None = None) -> Refusal | None:
    """Count one message on the heads, or return the refusal. The heads must have been advanced to `at`."""
    refusal = used_up(head, at, parent=parent)
    if refusal is None:
        head.sent_today += 1
        for one in _by_month(head, parent):
            one.sent_this_month += 1
    return refusal


def used_up(
    head: AccountHead,
    at: datetime,
    *,
    of: datetime | None = None,
    parent: AccountHead | None = None,
    reserve: float = 0.0,
) -> Refusal | None:
    """Return the refusal if a message at `of` (None: at `at`, the present) exceeds a cap that is already used up,
    else None.

    Future days and months have no counts yet. The heads must have been advanced to `at`. `reserve` is the share of each
    cap that is kept for other mail.
    """
    day = (of or at).date()
    cap = daily_cap(head)
    if day <= head.day and head.sent_today >= without_reserve(cap, reserve):
        return Refusal(
            ErrorType.DAILY_LIMIT_REACHED,
            f"You've reached today's limit of {cap} emails. Retry after midnight UTC.",
            retry_after_s=clock.seconds_until_next_day(at),
            limit=cap,
            sentToday=head.sent_today,
        )
    month = clock.first_of_month(day)
    for one in _limited_by_month(head, parent):
        if month <= one.month and one.sent_this_month >= without_reserve(monthly_cap(one), reserve):
            return _month_used_up(one, at, parent=parent)
    return None


def month_usage(head: AccountHead, at: datetime, *, parent: AccountHead | None = None) -> tuple[int, int]:
    """Return (messages sent, limit) of the month of `at`: of the account, or of its parent where less is left there."""
    month = clock.first_of_month(at.date())
    used = [
        (one.sent_this_month if one.month >= month else 0, monthly_cap(one)) for one in _limited_by_month(head, parent)
    ]
    return max(used, key=lambda one: one[0] / one[1] if one[1] else 1.0)


def without_reserve(cap: int, reserve: float) -> int:
    """Return the cap in messages without the share `reserve` (0 to 1) of it that is kept for other mail."""
    return cap - int(cap * reserve)


def untake(head: AccountHead, parent: AccountHead | None = None) -> None:
    """Uncount one message within the same transaction, after the platform's ceiling refused it."""
    head.sent_today -= 1
    for one in _by_month(head, parent):
        one.sent_this_month -= 1


def platform_refusal() -> Refusal:
    """Return the 429 of a platform that has reached its daily ceiling."""
    return Refusal(
        ErrorType.PLATFORM_PAUSED,
        "This instance has reached its daily limit; your account isn't the cause. Retry later.",
        retry_after_s=300,
    )


def _by_month(head: AccountHead, parent: AccountHead | None) -> tuple[AccountHead, ...]:
    """Return the heads whose monthly count a message adds to."""
    return (head,) if parent is None else (head, parent)


def _limited_by_month(head: AccountHead, parent: AccountHead | None) -> list[AccountHead]:
    """Return the heads whose monthly limit a message must fit in; a sub-account may have none of its own."""
    return [one for one in _by_month(head, parent) if one is not head or parent is None or head.monthly_cap is not None]


def _month_used_up(spent: AccountHead, at: datetime, *, parent: AccountHead | None) -> Refusal:
    """Return the 429 of a used-up month; for a sub-account, `allowance` names whose allowance it is."""
    limit = monthly_cap(spent)
    words = f"You've reached this month's limit of {limit} emails. Upgrade your plan, or wait for next month (UTC)."
    extra: dict[str, object] = {}
    if spent is parent:
        words = (
            f"The parent account has reached this month's limit of {limit} emails, which includes yours. Ask its owner."
        )
        extra = {"allowance": "parent"}
    elif parent is not None:
        words = (
            f"This sub-account has reached this month's limit of {limit} emails. Ask its parent account to raise it."
        )
        extra = {"allowance": "own"}
    return Refusal(
        ErrorType.MONTHLY_LIMIT_REACHED,
        words,
        retry_after_s=clock.seconds_until_next_month(at),
        limit=limit,
        sentThisMonth=spent.sent_this_month,
        **extra,
    )
