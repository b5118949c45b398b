"""Suspending accounts and letting them go on: by the rule on bounces and complaints, by the operator, by a parent.

An account is suspended as long as a cause stands. Its keys end within a second, its people may look, and its queued
mail is held; its sub-accounts are suspended with it. Each change is one transaction with its events and its mails.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.areas.statistics.rules import quarter_of
from engine.areas.system_mail.store import enqueue
from engine.areas.system_mail.types import SystemMailKind
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.delivery import holds
from engine.flows.sending import queue_admin
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.store import caches
from engine.store.queries import Conn, Queries, Source

MIN_SETTLED = 200  # recipients in a day: fewer say nothing
MAX_BOUNCED, MAX_COMPLAINED = 0.15, 0.005  # shares of them at which the rule suspends
WINDOW = timedelta(hours=24)
MAX_LOGS, MAX_EVENTS = 500, 20_000  # in one step of counting, and of one log
MAX_STEPS = 50  # in one round: what is left is counted in the next
HELD = "the account is suspended"  # stands on the waybills of its queued mail

_SQL = Queries.beside(__file__, "suspend.sql")
_LAY = _SQL.command("lay")
_LIFT = _SQL.command("lift")
_FOLLOW = _SQL.command("follow")
_HOLD_MAIL = _SQL.command("hold_mail")
_LET_MAIL_GO = _SQL.command("let_mail_go")
_PARDON = _SQL.command("pardon")
_OWNERS = _SQL.command("owners_of")
_IS_PLATFORM = _SQL.command("is_platform")
_OPEN = _SQL.command("open_standings")
_COUNT = _SQL.command("count_outcomes")
_FORGET = _SQL.command("forget_outcomes")

_log = structlog.get_logger("suspend")


class Cause(StrEnum):
    """Why an account is suspended; each is lifted by whoever it is of."""

    RATES = "rates"  # the rule's: the operator lifts it
    OPERATOR = "operator"
    PARENT = "parent"  # an admin's of the account above
    INHERITED = "inherited"  # the account above is suspended: goes with that


class StandingCause(Struct, frozen=True):
    """One cause that stands."""

    cause: str
    reason: str
    created_at: datetime


class FamilyMember(Struct, frozen=True):
    """An account of a family: a parent, or one of its sub-accounts."""

    id: UUID
    parent_id: UUID | None
    name: str
    status: str


class Offender(Struct, frozen=True):
    """An account that the rule is about to suspend, with its figures of the last day."""

    account_id: UUID
    settled: int
    bounced: int
    complained: int

    @property
    def reason(self) -> str:
        """In words for its people."""
        if self.complained >= MAX_COMPLAINED * self.settled:
            return f"{self.complained} complaints about {self.settled} recipients within 24 hours"
        return f"{self.bounced} of {self.settled} recipients bounced within 24 hours"


_FAMILY = _SQL.rows("family", FamilyMember)
_CAUSES = _SQL.rows("standing_causes", StandingCause)
_OFFENDERS = _SQL.rows("offenders", Offender)


async def suspend(pool: asyncpg.Pool, account: UUID, cause: Cause, reason: str, *, actor: str) -> None:
    """Suspend an account and its sub-accounts; 404 when there is none, 409 for the service's own.

    `reason` is for its people and stands in its log. A cause that stands already gets the new reason.
    """
    words = checked_reason(reason)
    async with pool.acquire() as connection, connection.transaction():
        await lay(connection, account, cause, words, at=clock.now(), actor=actor)


async def resume(pool: asyncpg.Pool, account: UUID, lifted: Collection[Cause], *, actor: str) -> list[StandingCause]:
    """Lift causes; returns those that still stand: without any the account goes on, and its held mail goes out."""
    async with pool.acquire() as connection, connection.transaction():
        await lift(connection, account, lifted, at=clock.now(), actor=actor)
        left = await causes(connection, account)
    await queue_admin.finish(pool)
    return left


async def causes(connection: Source, account: UUID) -> list[StandingCause]:
    """Why an account is suspended; empty when it is not."""
    return await _CAUSES.fetch(connection, account)


async def judge(pool: asyncpg.Pool, at: datetime) -> list[UUID]:
    """Count what has come of mail since the last call, and suspend the accounts whose shares of the last day are too
    high; returns them. Several workers may."""
    await _OPEN.execute(pool)
    since = ids.floor_of(clock.milliseconds(at - WINDOW - timedelta(hours=1)))
    for _ in range(MAX_STEPS):
        async with pool.acquire() as connection, connection.transaction():
            (step,) = await _COUNT.records(connection, MAX_LOGS, MAX_EVENTS, since)
        if step["logs"] < MAX_LOGS and not step["unfinished"]:
            break
    last = quarter_of(at - WINDOW)
    await _FORGET.execute(pool, last)
    found = await _OFFENDERS.fetch(pool, last, MIN_SETTLED, MAX_BOUNCED, MAX_COMPLAINED)
    done = []
    for one in found:
        with suppress(Refusal):  # it is being erased, or has just been named as the service's own
            await suspend(pool, one.account_id, Cause.RATES, one.reason, actor="service")
            done.append(one.account_id)
            _log.warning("account suspended", account=_public(one.account_id), reason=one.reason)
    return done


def checked_reason(text: str) -> str:
    """One line of printable characters; raises ValueError."""
    words = " ".join(text.split())
    if not 1 <= len(words) <= holds.MAX_REASON or not words.isprintable():
        raise ValueError(f"a reason has 1 to {holds.MAX_REASON} printable characters")
    return words


async def owners(connection: Conn, account: UUID) -> list[str]:
    """The addresses that mail about an account goes to: its owners', or those of the account above it."""
    return [row["email"] for row in await _OWNERS.records(connection, account)]


async def is_platform(connection: Source, account: UUID) -> bool:
    """Whether it is the account that the service itself sends from."""
    return bool(await _IS_PLATFORM.records(connection, account))


# -- within the caller's transaction ------------------------------------------------------------------


async def lay(connection: Conn, account: UUID, cause: Cause, reason: str, *, at: datetime, actor: str) -> None:
    """Lay a cause on an account and on those below it."""
    family = await locked_family(connection, account)
    if await is_platform(connection, account):
        raise Refusal(
            ErrorType.INVALID_STATE, "The service itself sends from this account: it stays.", status="permanent"
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
            for address in await owners(connection, account):
                await enqueue(
                    connection, SystemMailKind.ACCOUNT_SUSPENDED, address, at=at, account_name=one.name, reason=reason
                )


async def lift(connection: Conn, account: UUID, lifted: Collection[Cause], *, at: datetime, actor: str) -> None:
    """Lift causes from an account; those below it go on with it where nothing else stands against them.

    Held mail goes out after the commit, at the next `queue_admin.finish`.
    """
    family = await locked_family(connection, account)
    gone = {row["cause"] for row in await _LIFT.records(connection, [account], [cause.value for cause in lifted])}
    if gone & {Cause.RATES, Cause.OPERATOR}:  # not when a parent lets go: that would wipe the slate at will
        await _PARDON.execute(connection, account, at)
    below = [one.id for one in family if one.parent_id == account]
    if below and not await causes(connection, account):
        await _LIFT.records(connection, below, [Cause.INHERITED.value])
    for one in await _changed(connection, family, [account, *below]):
        await _LET_MAIL_GO.execute(connection, one.id)
        await tell(connection, one, AccountEvent.ACCOUNT_RESUMED, {}, actor)
        if one.id == account and gone & {Cause.RATES, Cause.OPERATOR}:
            for address in await owners(connection, account):
                await enqueue(connection, SystemMailKind.ACCOUNT_RESUMED, address, at=at, account_name=one.name)


async def locked_family(connection: Conn, account: UUID) -> list[FamilyMember]:
    """The account, the one above it and those below it, their heads locked in one go; 404 when it is erased by now."""
    family = await _FAMILY.fetch(connection, account)
    await heads.lock(connection, [one.id for one in family])
    family = await _FAMILY.fetch(connection, account)  # as it stands under the locks
    if all(one.id != account for one in family):
        raise not_found("account")
    return family


async def _changed(connection: Conn, family: Sequence[FamilyMember], chosen: Sequence[UUID]) -> list[FamilyMember]:
    """Have the chosen follow their causes; those whose status that has changed, in the order of ids."""
    rows = await _FOLLOW.records(connection, chosen)
    if rows:
        await caches.bump(connection, "keys")
        await caches.bump(connection, holds.KIND)
    moved = {row["id"] for row in rows}
    return [one for one in family if one.id in moved]


async def tell(connection: Conn, one: FamilyMember, kind: AccountEvent, detail: dict[str, object], actor: str) -> None:
    """Append an `account.…` event to the account's log, and its `sub_account.…` twin to the parent account's."""
    await record_event(connection, one.id, kind, detail, actor=actor)
    if one.parent_id is not None:
        for_parent = AccountEvent(f"sub_{kind}")
        await record_event(connection, one.parent_id, for_parent, {"id": _public(one.id), **detail}, actor=actor)


def _cause_of(one: FamilyMember, account: UUID, cause: Cause) -> str:
    return cause.value if one.id == account else Cause.INHERITED.value


def _public(account: UUID) -> str:
    return ids.format_id(ids.Kind.ACCOUNT, account)
