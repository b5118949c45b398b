"""Mail owners and admins when their account has used its daily limit, or 80% or all of its monthly allowance.

A job of the worker compares the counts of the account heads with their limits, so that acceptance does nothing for it.
Each mail is queued in the transaction that records it: one a period, whichever worker finds it, and another one only if
the limit was raised since. System mail leaves through the platform account: it counts against no limit of this one.
"""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.plans import CAPS, DAILY_ALLOWANCES
from engine.ledger import quota
from engine.ledger.heads import AccountHead
from engine.people.account import store as accounts
from engine.people.people import store as people
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store.database_errors import ForeignKeyViolation
from engine.store.jobs import Job
from engine.store.queries import Queries

BATCH: Final = 200
NEAR: Final = 0.8  # share of the monthly allowance at which the first mail goes out
_SQL = Queries.beside(__file__, "limit_mails.sql")
_AT_LIMITS = _SQL.rows("heads_at_limits", AccountHead)
_NOTE = _SQL.command("note_limit_mail")


class LimitMail(Struct, frozen=True):
    """A mail that is due: `used` of `cap` messages in the day or month that begins on `period`."""

    kind: SystemMailKind
    period: date
    used: int
    cap: int


async def send_due(pool: asyncpg.Pool, at: datetime) -> int:
    """Queue the mails of all accounts that have reached a limit; return the number of limits told.

    Counts of the day before are still looked at, because a limit may have been reached just before midnight. Several
    workers may do it at once.
    """
    told, after = 0, UUID(int=0)
    plans = [(plan.value, caps.monthly_emails) for plan, caps in CAPS.items()]
    names, allowances = zip(*plans, strict=True)
    day = at.date() - timedelta(days=1)
    while True:
        heads = await _AT_LIMITS.fetch(pool, names, allowances, DAILY_ALLOWANCES, NEAR, day, after, BATCH)
        for head in heads:
            for mail in due(head):
                told += await _tell(pool, head, mail, at)
        if len(heads) < BATCH:
            return told
        after = heads[-1].account_id


JOB = Job("limit mails", every_s=60, run=lambda pool, _: send_due(pool, clock.now()), share=0.05)


def due(head: AccountHead) -> Iterator[LimitMail]:
    """Yield the mails that the counts of an account call for, of those about its month only the more urgent one.

    A sub-account without a monthly limit of its own uses its parent's, of which the parent's head tells.
    """
    cap = quota.daily_cap(head)
    if head.sent_today >= max(cap, 1):
        yield LimitMail(SystemMailKind.DAILY_LIMIT_REACHED, head.day, head.sent_today, cap)
    if head.parent_id is not None and head.monthly_cap is None:
        return
    cap, used = quota.monthly_cap(head), head.sent_this_month
    if used >= max(cap, 1):
        yield LimitMail(SystemMailKind.MONTHLY_LIMIT_REACHED, head.month, used, cap)
    elif used >= max(NEAR * cap, 1):
        yield LimitMail(SystemMailKind.MONTHLY_LIMIT_NEAR, head.month, used, cap)


async def _tell(pool: asyncpg.Pool, head: AccountHead, mail: LimitMail, at: datetime) -> bool:
    """Record a mail and queue it to the owners and admins, those of the parent for a sub-account.

    Return False if it was recorded before, or the account was erased meanwhile.
    """
    try:
        async with pool.acquire() as connection, connection.transaction():
            if not await _NOTE.records(connection, head.account_id, mail.kind.value, mail.period, mail.cap):
                return False
            account = await accounts.READ.first(connection, head.account_id)
            for person in await people.MANAGERS.fetch(connection, head.parent_id or head.account_id):
                await enqueue(
                    connection,
                    mail.kind,
                    person.email,
                    at=at,
                    account_name="" if account is None else account.name,
                    used=f"{mail.used:,}",
                    limit=f"{mail.cap:,}",
                    period=_period(mail),
                    next_period=_day(_next_period(mail)),
                )
    except ForeignKeyViolation:
        return False
    return True


def _next_period(mail: LimitMail) -> date:
    """Return the day on which the count begins again."""
    if mail.kind is SystemMailKind.DAILY_LIMIT_REACHED:
        return mail.period + timedelta(days=1)
    return clock.first_of_month(mail.period + timedelta(days=31))


def _period(mail: LimitMail) -> str:
    if mail.kind is SystemMailKind.DAILY_LIMIT_REACHED:
        return _day(mail.period)
    return f"{mail.period:%B %Y}"


def _day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
