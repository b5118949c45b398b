"""Suspend and resume accounts: by the rule on bounces and complaints, by the operator, or by the parent account.

An account is suspended while it has a cause. Its keys stop working within a second, its people can still read, its
queued mail is held, and its sub-accounts are suspended with it. Each change is one transaction with its events and
mails.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.accounts.billing.change_plan import tell_managers
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.delivery import holds
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.people.system_mail.types import SystemMailKind
from engine.sending import queue_admin
from engine.sending.statistics.rules import quarter_of
from engine.store import caches
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries, Source

MIN_SETTLED = 200  # recipients in a day; fewer are not significant
MAX_BOUNCED, MAX_COMPLAINED = 0.15, 0.005  # shares of recipients at which the rule suspends
# Complaints suspend only if they come from several sides. An authenticated reporter counts once per recipient domain in
# the window, in the share as well; other complaints do not count.
MIN_COMPLAINTS, MIN_REPORTERS = 3, 2
WINDOW = timedelta(hours=24)
KEPT = timedelta(days=31)  # figures by day, for the rates of alerts
MAX_LOGS, MAX_EVENTS = 500, 20_000  # in one step of counting, in total and per log
MAX_STEPS = 50  # in one round; the next round continues
HELD = "the account is suspended"  # the reason on the waybills of its queued mail

_SQL = Queries.beside(__file__, "suspend.sql")
_LAY = _SQL.command("lay")
_LIFT = _SQL.command("lift")
_FOLLOW = _SQL.command("follow")
_HOLD_MAIL = _SQL.command("hold_mail")
_RELEASE_MAIL = _SQL.command("release_mail")
_PARDON = _SQL.command("pardon")
_OWNERS = _SQL.command("owners_of")
_IS_PLATFORM = _SQL.command("is_platform")
_OPEN = _SQL.command("open_standings")
_COUNT = _SQL.command("count_outcomes")
_FORGET = _SQL.command("forget_outcomes")

_log = structlog.get_logger("suspend")


class Cause(StrEnum):
    """The cause of a suspension, which decides who may lift it."""

    RATES = "rates"  # set by the rule; the operator lifts it
    OPERATOR = "operator"
    PARENT = "parent"  # set and lifted by the parent account
    INHERITED = "inherited"  # the parent account is suspended; ends with that


class ActiveCause(Struct, frozen=True):
    """A cause for which an account is suspended now."""

    cause: str
    reason: str
    created_at: datetime


class FamilyMember(Struct, frozen=True):
    """A parent account or one of its sub-accounts."""

    id: UUID
    parent_id: UUID | None
    name: str
    status: str


class Offender(Struct, frozen=True):
    """An account that the rule suspends, with its figures of the last 24 hours."""

    account_id: UUID
    settled: int
    bounced: int
    complained: int

    @property
    def reason(self) -> str:
        """Return the reason as a sentence for the account's people."""
        if self.bounced >= MAX_BOUNCED * self.settled:  # first: many complaints alone need not be the cause
            return f"{self.bounced} of {self.settled} recipients bounced within 24 hours"
        return f"{self.complained} complaints about {self.settled} recipients within 24 hours"


_FAMILY = _SQL.rows("family", FamilyMember)
_CAUSES = _SQL.rows("active_causes", ActiveCause)
_OFFENDERS = _SQL.rows("offenders", Offender)


async def suspend(pool: asyncpg.Pool, account: UUID, cause: Cause, reason: str, *, actor: str) -> None:
    """Suspend an account and its sub-accounts; raises 404 for an unknown account, 409 for the platform account.

    `reason` is recorded in its log and shown to its people. An existing cause gets the new reason.
    """
    words = checked_reason(reason)
    async with pool.acquire() as connection, connection.transaction():
        await lay(connection, account, cause, words, at=clock.now(), actor=actor)


async def resume(pool: asyncpg.Pool, account: UUID, lifted: Collection[Cause], *, actor: str) -> list[ActiveCause]:
    """Lift causes; return the remaining ones. Without any, the account is active again and its held mail is
    released.
    """
    async with pool.acquire() as connection, connection.transaction():
        await lift(connection, account, lifted, at=clock.now(), actor=actor)
        left = await causes(connection, account)
    await queue_admin.finish(pool)
    return left


async def causes(connection: Source, account: UUID) -> list[ActiveCause]:
    """Return the causes for which an account is suspended; empty if it is active."""
    return await _CAUSES.fetch(connection, account)


async def judge(pool: asyncpg.Pool, at: datetime) -> list[UUID]:
    """Count outcomes since the last call, and suspend accounts whose shares of the last 24 hours are too high;
    return them.

    Several workers can call it at once.
    """
    await count_outcomes(pool, at)
    last = quarter_of(at - WINDOW)
    await _FORGET.execute(pool, last, (at - KEPT).date())
    limits = (MIN_SETTLED, MAX_BOUNCED, MAX_COMPLAINED, MIN_COMPLAINTS, MIN_REPORTERS)
    found = await _OFFENDERS.fetch(pool, last, *limits)
    done = []
    for one in found:
        with suppress(Refusal):  # it is being erased, or has just become the platform account
            await suspend(pool, one.account_id, Cause.RATES, one.reason, actor="service")
            done.append(one.account_id)
            _log.warning("account suspended", account=_public(one.account_id), reason=one.reason)
    return done


JOB = Job("standings", every_s=60, run=lambda pool, _: judge(pool, clock.now()))


async def count_outcomes(pool: asyncpg.Pool, at: datetime) -> None:
    """Add the outcomes in the account logs since the last call to the figures of suspensions and alerts.

    Several workers can call it at once.
    """
    await _OPEN.execute(pool)
    since = ids.floor_of(clock.milliseconds(at - WINDOW - timedelta(hours=1)))
    for _ in range(MAX_STEPS):
        async with pool.acquire() as connection, connection.transaction():
            (step,) = await _COUNT.records(connection, MAX_LOGS, MAX_EVENTS, since)
        if step["logs"] < MAX_LOGS and not step["unfinished"]:
            break


def checked_reason(text: str) -> str:
    """Return the reason as one line of printable characters; raises ValueError."""
    words = " ".join(text.split())
    if not 1 <= len(words) <= holds.MAX_REASON or not words.isprintable():
        raise ValueError(f"the reason must have 1 to {holds.MAX_REASON} printable characters")
    return words


async def owners(connection: Conn, account: UUID) -> list[str]:
    """Return the addresses for mail about an account: of its owners, or of its parent account's."""
    return [row["email"] for row in await _OWNERS.records(connection, account)]


async def is_platform(connection: Source, account: UUID) -> bool:
    """Return True if it is the platform account."""
    return bool(await _IS_PLATFORM.records(connection, account))


# -- within the caller's transaction ------------------------------------------------------------------


async def lay(connection: Conn, account: UUID, cause: Cause, reason: str, *, at: datetime, actor: str) -> None:
    """Add a cause to an account, and an inherited one to its sub-accounts."""
    family = await locked_family(connection, account)
    if await is_platform(connection, account):
        raise Refusal(
            ErrorType.INVALID_STATE,
            "This is the platform account, which sends system mail; it cannot be suspended.",
            state="permanent",
        )
    await _LAY.execute(connection, [account], cause.value, reason, at)
    below = [one.id for one in family if one.parent_id == account]
    if below:
        await _LAY.execute(connection, below, Cause.INHERITED.value, "its parent account is suspended", at)
    for one in await _changed(connection, family, [account, *below]):
        await _HOLD_MAIL.execute(connection, one.id, ids.uuid7(), _public(one.id), HELD)
        await tell(
            connection,
            one,
            AccountEvent.ACCOUNT_SUSPENDED,
            {"cause": _cause_of(one, account, cause), "reason": reason},
            actor,
        )
        if one.id == account and cause is not Cause.PARENT:
            await tell_managers(connection, account, SystemMailKind.ACCOUNT_SUSPENDED, at, reason=reason)


async def lift(connection: Conn, account: UUID, lifted: Collection[Cause], *, at: datetime, actor: str) -> None:
    """Lift causes from an account; sub-accounts without another cause become active too.

    Held mail is released after the commit, by the next `queue_admin.finish`.
    """
    family = await locked_family(connection, account)
    gone = {row["cause"] for row in await _LIFT.records(connection, [account], [cause.value for cause in lifted])}
    if gone & {
        Cause.RATES,
        Cause.OPERATOR,
    }:  # not when a parent lifts its own cause, which would reset the figures at will
        await _PARDON.execute(connection, account, at)
    below = [one.id for one in family if one.parent_id == account]
    if below and not await causes(connection, account):
        await _LIFT.records(connection, below, [Cause.INHERITED.value])
    for one in await _changed(connection, family, [account, *below]):
        await _RELEASE_MAIL.execute(connection, one.id)
        await tell(connection, one, AccountEvent.ACCOUNT_RESUMED, {}, actor)
        if one.id == account and gone & {Cause.RATES, Cause.OPERATOR}:
            await tell_managers(connection, account, SystemMailKind.ACCOUNT_RESUMED, at)


async def locked_family(connection: Conn, account: UUID) -> list[FamilyMember]:
    """Lock the heads of an account, its parent and its sub-accounts, and return them; raises 404 if it was erased."""
    family = await _FAMILY.fetch(connection, account)
    await heads.lock(connection, [one.id for one in family])
    family = await _FAMILY.fetch(connection, account)  # read again under the locks
    if all(one.id != account for one in family):
        raise not_found("account")
    return family


async def _changed(connection: Conn, family: Sequence[FamilyMember], chosen: Sequence[UUID]) -> list[FamilyMember]:
    """Update the status of the chosen accounts from their causes; return those that changed, in the order of ids."""
    rows = await _FOLLOW.records(connection, chosen)
    if rows:
        await caches.bump(connection, "keys")
        await caches.bump(connection, holds.KIND)
    moved = {row["id"] for row in rows}
    return [one for one in family if one.id in moved]


async def tell(connection: Conn, one: FamilyMember, kind: AccountEvent, detail: dict[str, object], actor: str) -> None:
    """Append an `account.…` event to the account's log, and a `sub_account.…` event to its parent's."""
    await record_event(connection, one.id, kind, detail, actor=actor)
    if one.parent_id is not None:
        for_parent = AccountEvent(f"sub_{kind}")
        await record_event(connection, one.parent_id, for_parent, {"id": _public(one.id), **detail}, actor=actor)


def _cause_of(one: FamilyMember, account: UUID, cause: Cause) -> str:
    return cause.value if one.id == account else Cause.INHERITED.value


def _public(account: UUID) -> str:
    return ids.format_id(ids.Kind.ACCOUNT, account)
