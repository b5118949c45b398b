"""Sending allowance of one account: daily ladder and monthly allowance, decided on its locked head.

A sub-account's messages count against its own ladder, its own monthly limit where it has one, and its parent's
allowance: `parent` is the parent's head, locked with its own.

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


def monthly_cap(head: Head, parent: Head | None = None) -> int:
    """Messages the account may send in the month its head stands at; a sub-account without a limit of its own may send
    what its parent may. An agreement on Enterprise never lowers what the plan includes."""
    plan = Plan(head.plan)
    if head.monthly_cap is None:
        return CAPS[plan].monthly_emails if parent is None else monthly_cap(parent)
    if plan is Plan.ENTERPRISE and head.parent_id is None:
        return max(head.monthly_cap, CAPS[plan].monthly_emails)
    return head.monthly_cap


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


def turn_to(
    head: Head, day: date, *, bounced: int = 0, complained: int = 0, settled: int = 0, simulated: int = 0
) -> None:
    """Bring the head to `day`: on a new day the review of the day before, on a new month a fresh count.

    `bounced`, `complained` and `settled` count recipients of the day before, without those simulated; `simulated`
    counts the messages that went to nobody else: they were sent, and earn nothing. A head that is ahead of `day`
    (the clock of another host) is left alone.
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


def take(head: Head, at: datetime, parent: Head | None = None) -> Refusal | None:
    """Count one message on the heads, or say why it can't be sent. They must have been turned to `at`."""
    refusal = used_up(head, at, parent=parent)
    if refusal is None:
        head.sent_today += 1
        for one in _by_month(head, parent):
            one.sent_this_month += 1
    return refusal


def used_up(head: Head, at: datetime, *, of: datetime | None = None, parent: Head | None = None) -> Refusal | None:
    """Why nothing more can be sent at `of` (None: at `at`, the present) as far as is known by now.

    Days and months to come are not known yet. The heads must have been turned to `at`.
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
    month = clock.first_of_month(day)
    for one in _by_month(head, parent):
        limited = one is not head or parent is None or head.monthly_cap is not None
        if limited and month <= one.month and one.sent_this_month >= monthly_cap(one):
            return _month_used_up(one, at, parent=parent)
    return None


def untake(head: Head, parent: Head | None = None) -> None:
    """Give one counted message back within the same transaction (the platform's ceiling refused it)."""
    head.sent_today -= 1
    for one in _by_month(head, parent):
        one.sent_this_month -= 1


def platform_refusal() -> Refusal:
    """The platform as a whole has accepted what it may today."""
    return Refusal(
        ErrorType.PLATFORM_PAUSED,
        "The platform has reached its ceiling for today. This is not about your account; try again later.",
        retry_after_s=300,
    )


def _by_month(head: Head, parent: Head | None) -> tuple[Head, ...]:
    """The heads on which a message counts for the month."""
    return (head,) if parent is None else (head, parent)


def _month_used_up(spent: Head, at: datetime, *, parent: Head | None) -> Refusal:
    """The 429 of a month; that of a sub-account says whose allowance it is, in `allowance`."""
    limit = monthly_cap(spent)
    words = f"This account has used its {limit} messages of this month (UTC). A larger plan lifts this at once."
    told: dict[str, object] = {}
    if spent is parent:
        words = f"The account above this one has used its {limit} messages of this month (UTC), yours included."
        told = {"allowance": "parent"}
    elif parent is not None:
        words = (
            f"This sub-account has used its {limit} messages of this month (UTC). Its parent account sets the limit."
        )
        told = {"allowance": "own"}
    return Refusal(
        ErrorType.MONTHLY_LIMIT_REACHED,
        words,
        retry_after_s=clock.seconds_until_next_month(at),
        limit=limit,
        sentThisMonth=spent.sent_this_month,
        **told,
    )
