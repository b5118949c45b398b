"""Sending allowance of one account: daily ladder and monthly allowance, decided on its locked head.

Pure: the head is read and written by its caller inside the transaction that holds its lock, so that
parallel sends are counted exactly.
"""

from datetime import date, datetime, timedelta

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.plans import CAPS, DAILY_LADDER, Plan
from engine.ledger.heads import Head

USED_TO_RISE = 0.8  # share of the cap that the day before must have used
COMPLAINTS_TO_RISE, BOUNCES_TO_RISE = 0.001, 0.05
COMPLAINTS_TO_FALL, BOUNCES_TO_FALL = 0.003, 0.10


def daily_cap(head: Head) -> int:
    """Messages the account may send on the day its head stands at."""
    return DAILY_LADDER[head.rung] if head.daily_cap is None else head.daily_cap


def monthly_cap(head: Head) -> int:
    """Messages the account may send in the month its head stands at."""
    return CAPS[Plan(head.plan)].monthly_emails if head.monthly_cap is None else head.monthly_cap


def reviewed_rung(rung: int, *, sent: int, bounced: int, complained: int, cap: int, settled: int = 0) -> int:
    """The rung after a look at one day's figures: one up, one down, or held.

    `sent` counts messages, the others recipients: rates are of the recipients, of whom there is at least one a
    message whether or not it has been settled.
    """
    if sent == 0:
        return rung
    recipients = max(sent, settled)
    bounces, complaints = bounced / recipients, complained / recipients
    if complaints > COMPLAINTS_TO_FALL or bounces > BOUNCES_TO_FALL:
        return max(0, rung - 1)
    if sent >= USED_TO_RISE * cap and complaints <= COMPLAINTS_TO_RISE and bounces <= BOUNCES_TO_RISE:
        return min(len(DAILY_LADDER) - 1, rung + 1)
    return rung


def due_for_review(head: Head, day: date) -> bool:
    """True on the first send of `day` when the account sent on the day before; other idle days hold the rung."""
    return head.day == day - timedelta(days=1)


def turn_to(head: Head, day: date, *, bounced: int = 0, complained: int = 0, settled: int = 0) -> None:
    """Bring the head to `day`: on a new day the review of the day before, on a new month a fresh count.

    `bounced`, `complained` and `settled` count recipients of the day before. A head that is ahead of `day`
    (the clock of another host) is left alone.
    """
    if head.day < day:
        if due_for_review(head, day):
            head.rung = reviewed_rung(
                head.rung,
                sent=head.sent_today,
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


def take(head: Head, at: datetime) -> Refusal | None:
    """Count one message on the head, or say why it can't be sent. The head must have been turned to `at`."""
    refusal = used_up(head, at)
    if refusal is None:
        head.sent_today += 1
        head.sent_this_month += 1
    return refusal


def used_up(head: Head, at: datetime, *, of: datetime | None = None) -> Refusal | None:
    """Why nothing more can be sent at `of` (None: at `at`, the present) as far as is known by now.

    Days and months to come are not known yet. The head must have been turned to `at`.
    """
    day = (of or at).date()
    cap = daily_cap(head)
    if day <= head.day and head.sent_today >= cap:
        return Refusal(
            ErrorType.DAILY_LIMIT_REACHED,
            f"This account has sent its {cap} messages of today (UTC). Try again after midnight UTC.",
            retry_after_s=clock.seconds_until_next_day(at),
            limit=cap,
            sentToday=head.sent_today,
        )
    allowance = monthly_cap(head)
    if clock.first_of_month(day) <= head.month and head.sent_this_month >= allowance:
        return Refusal(
            ErrorType.MONTHLY_LIMIT_REACHED,
            f"This account has used its {allowance} messages of this month (UTC). A larger plan lifts this at once.",
            retry_after_s=clock.seconds_until_next_month(at),
            limit=allowance,
            sentThisMonth=head.sent_this_month,
        )
    return None


def untake(head: Head) -> None:
    """Give one counted message back within the same transaction (the platform's ceiling refused it)."""
    head.sent_today -= 1
    head.sent_this_month -= 1


def platform_refusal() -> Refusal:
    """The platform as a whole has accepted what it may today."""
    return Refusal(
        ErrorType.PLATFORM_PAUSED,
        "The platform has reached its ceiling for today. This is not about your account; try again later.",
        retry_after_s=300,
    )
