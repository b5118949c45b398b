"""Derive the notices of an account, and mark them for a person."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from engine.accounts.notices import rules, store
from engine.accounts.notices.types import MAX_OF_A_KIND, AccountNotice, MarkedNotice, NoticeMark, SendingUse
from engine.events.webhooks.types import FAILING
from engine.people.account import allowance
from engine.store.queries import Conn

STOPPED_SHOWN: Final = timedelta(days=7)


async def read(pool: asyncpg.Pool, account: UUID, user: UUID, at: datetime) -> list[MarkedNotice]:
    """Return the notices that the person has not dismissed."""
    async with pool.acquire() as connection:
        notices = await _notices(connection, account, at)
        marks = await store.MARKS_OF.fetch(connection, account, user)
    return rules.shown_to(marks, notices)


async def mark(
    pool: asyncpg.Pool, account: UUID, user: UUID, wanted: Collection[str], how: NoticeMark, at: datetime
) -> list[MarkedNotice]:
    """Mark notices for the person, and return those left; ids of notices that have gone do nothing."""
    async with pool.acquire() as connection, connection.transaction():
        notices = await _notices(connection, account, at)
        present = [one.id for one in notices]
        found = [one for one in present if one in wanted]
        await store.MARK.execute(connection, account, user, found, at, how == "dismissed", present)
        marks = await store.MARKS_OF.fetch(connection, account, user)
    return rules.shown_to(marks, notices)


async def _notices(connection: Conn, account: UUID, at: datetime) -> list[AccountNotice]:
    found = await store.FIND.fetch(connection, account, MAX_OF_A_KIND, FAILING, at - STOPPED_SHOWN, at)
    left = await allowance.read(connection, account, at)
    use = SendingUse(
        sent_today=left.sent_today,
        daily_limit=left.daily_limit,
        sent_this_month=left.sent_this_month,
        monthly_limit=left.monthly_limit,
    )
    return rules.notices_of(found, use, at)
