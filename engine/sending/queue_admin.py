"""The operator's changes to the queue: suspend, resume, flush and bounce, by domain, account, message or site.

`queue_commands` offers them to `ops` and the operator's API. Each works through the queue in small transactions,
oldest message first, while mail flows, and records its effect on each waybill. An interrupted command can be repeated.
Released rows fall due spread over time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import AccountEvent
from engine.delivery import holds
from engine.delivery.holds import Hold, HoldKind
from engine.delivery.outcome import Category, Outcome, Scope, Verdict
from engine.delivery.queue import Row
from engine.delivery.wait_reasons import QueuedReason, UntriedReason
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.ledger.platform_log import OPERATOR, record_platform_change
from engine.mail.address import domain_name
from engine.people.account import store as accounts
from engine.sending import postpone, settle
from engine.sending.settle import DeliveryAttempt, Result
from engine.store import caches
from engine.store.database_clock import DatabaseClock
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries, columns

CHUNK = 250  # rows per transaction, which locks their accounts' heads for about 20 ms
MIN_RELEASED_PER_S = 200.0  # rows
MAX_RELEASE_S = 600.0  # for all rows of a command
HOLD_KNOWN_S = 1.5  # until every process knows a new hold and has put aside what it had in memory
BOUNCE_HOLD = timedelta(hours=1)  # how long the hold of a bounce may outlast a command that died

_SQL = Queries.beside(__file__, "queue_admin.sql")
_OWED = _SQL.rows("owed_rows", Row)
_COUNT = _SQL.command("count_owed")
_BRING_FORWARD = _SQL.command("bring_forward")
_LOCK = _SQL.command("lock_rows")
_NOWHERE = UUID(int=0)


class QueueTarget(Struct, frozen=True):
    """The rows that a command applies to. `domains` are recipient domains (all that lead to a site), None for all."""

    kind: HoldKind
    target: str
    domains: tuple[str, ...] | None = None
    account: UUID | None = None
    message: UUID | None = None


def queue_target(kind: HoldKind, target: str, site_domains: Sequence[str] = ()) -> QueueTarget:
    """Return the operator's target; raises WrongId or BadAddress. `site_domains` are the domains of a site."""
    match kind:
        case HoldKind.ACCOUNT:
            return QueueTarget(kind, target, account=ids.parse_id(ids.Kind.ACCOUNT, target))
        case HoldKind.MESSAGE:
            return QueueTarget(kind, target, message=ids.parse_id(ids.Kind.MESSAGE, target))
        case HoldKind.DOMAIN:
            name = domain_name(target)
            return QueueTarget(kind, name, domains=(name,))
        case HoldKind.SITE:
            everywhere = target == holds.EVERYWHERE
            return QueueTarget(kind, target.lower(), domains=None if everywhere else tuple(site_domains))


async def suspend(
    pool: asyncpg.Pool, on: QueueTarget, *, reason: str, until: datetime | None = None, actor: str = OPERATOR
) -> int:
    """Hold deliveries until `until`, or until `resume`; return how many due rows are newly held.

    Rows that fall due later, and new mail, are held when they fall due. An existing hold gets the new reason and end.
    Raises ValueError for an empty or long reason, 404 for an unknown account.
    """
    return await hold_due_rows(pool, on, await put_hold(pool, on, reason=reason, until=until, actor=actor))


async def resume(pool: asyncpg.Pool, on: QueueTarget, *, note: str | None = None, actor: str = OPERATOR) -> int | None:
    """End the hold on a target; return how many rows are released, spread over time, or None if there is no hold."""
    ended = await end_hold(pool, on, note=note, actor=actor)
    return None if ended is None else await release_rows(pool, ended, note=note)


async def put_hold(
    pool: asyncpg.Pool, on: QueueTarget, *, reason: str, until: datetime | None = None, actor: str = OPERATOR
) -> Hold:
    """Put a target under a hold, which every process knows within a second; raises as `suspend` does."""
    words = checked_reason(reason)
    if until is not None and until <= clock.now():
        raise ValueError("the hold's end must be in the future")
    async with pool.acquire() as connection, connection.transaction():
        await _check_account(connection, on)
        laid = await _lay(connection, on, words, until)  # before any head is locked, as in `postpone.hold_rows`
        detail = {"reason": words, "until": clock.iso_or_none(until)}
        if on.account is None:
            await record_platform_change(connection, "suspend_queue", _named(on) | detail, actor=actor)
        else:
            await record_event(connection, on.account, AccountEvent.DELIVERY_SUSPENDED, detail, actor=actor)
    return laid


async def hold_due_rows(pool: asyncpg.Pool, on: QueueTarget, laid: Hold) -> int:
    """Put the due rows of a target under its hold; return how many are newly held.

    The mta processes do the same with each row that falls due.
    """
    await _finish_ended(pool)
    time = await DatabaseClock.read(pool)
    soon = time.now() + timedelta(seconds=60)

    async def put(connection: Conn, rows: list[Row]) -> int:
        due = [(row, laid) for row in rows if row.due_at <= soon]
        return await postpone.hold_rows(connection, due, time.now()) if due else 0

    return await _each(pool, on, put)


async def end_hold(
    pool: asyncpg.Pool, on: QueueTarget, *, note: str | None = None, actor: str = OPERATOR
) -> Hold | None:
    """End the hold on a target and return it, or None if there is none. Its rows are left to `release_rows`."""
    async with pool.acquire() as connection, connection.transaction():
        ended = await holds.END.first(connection, on.kind.value, on.target)
        if ended is None:
            return None
        detail = {"reason": note or ended.reason}
        if on.account is None:
            await record_platform_change(connection, "resume_queue", _named(on) | detail, actor=actor)
        else:
            await record_event(connection, on.account, AccountEvent.DELIVERY_RESUMED, detail, actor=actor)
        await caches.bump(connection, holds.KIND)
    return ended


async def release_rows(pool: asyncpg.Pool, ended: Hold, *, note: str | None = None) -> int:
    """Release the rows of an ended hold, spread over time; return how many."""
    return await _finish_ended(pool, note=note, of=ended.id)


async def flush(pool: asyncpg.Pool, on: QueueTarget, *, note: str | None = None, actor: str = OPERATOR) -> int:
    """Make deliveries that wait for a retry due now, spread over time, except held ones; return the number of rows."""
    await _record(pool, "flush_queue", on, {"note": note}, actor)
    last = ids.floor_of(clock.milliseconds(clock.now()) + 1)
    total = await _count(pool, on, None, last)
    return await _bring_forward(pool, on, None, total, last, {"reason": QueuedReason.OPERATOR_FLUSH, "note": note})


async def bounce(
    pool: asyncpg.Pool, on: QueueTarget, *, reason: str, hold_known_s: float = HOLD_KNOWN_S, actor: str = OPERATOR
) -> int:
    """End the deliveries with the operator's reason; return the number of queue rows.

    Recipients without an attempt become `rejected`, others `failed`.
    Their addresses are not suppressed, and the account's bounces do not count them. Meanwhile the target is held, so
    that no process starts a delivery; a message in transmission at that moment may still arrive.
    """
    words = checked_reason(reason)
    await _record(pool, "bounce_queue", on, {"reason": words}, actor)
    last = ids.floor_of(clock.milliseconds(clock.now()) + 1)  # later messages are not affected
    existing = {(one.kind, one.target) for one in await holds.IN_FORCE.fetch(pool)}
    temporary = (on.kind.value, on.target) not in existing
    if temporary:
        async with pool.acquire() as connection, connection.transaction():
            await _lay(connection, on, words, clock.now() + BOUNCE_HOLD)
    try:
        await asyncio.sleep(hold_known_s)
        return await _each(pool, on, _ending(UntriedReason.OPERATOR, f"ended by the operator: {words}"), last=last)
    finally:
        if temporary:
            async with pool.acquire() as connection, connection.transaction():
                await holds.END.execute(connection, on.kind.value, on.target)
                await caches.bump(connection, holds.KIND)
            await _finish_ended(pool)


async def withdraw(
    pool: asyncpg.Pool, messages: Sequence[UUID], *, reason: str, hold_known_s: float = HOLD_KNOWN_S
) -> int:
    """End the deliveries of messages whose recipient's data is erased; return the number of queue rows."""
    targets = [QueueTarget(HoldKind.MESSAGE, ids.format_id(ids.Kind.MESSAGE, one), message=one) for one in messages]
    async with pool.acquire() as connection, connection.transaction():
        for on in targets:
            await _lay(connection, on, reason, clock.now() + BOUNCE_HOLD)
    try:
        await asyncio.sleep(hold_known_s)
        return sum([await _each(pool, on, _ending(UntriedReason.ADDRESS_ERASED, reason)) for on in targets])
    finally:
        async with pool.acquire() as connection, connection.transaction():
            for on in targets:
                await holds.END.execute(connection, on.kind.value, on.target)
            await caches.bump(connection, holds.KIND)
        await _finish_ended(pool)


async def finish(pool: asyncpg.Pool) -> None:
    """Release the rows of all holds that have ended.

    Called after a suspension ends, and in the background for commands that died on the way.
    """
    await _finish_ended(pool)


JOB = Job("ended holds", every_s=5, run=lambda pool, _: finish(pool))


async def holds_in_force(pool: asyncpg.Pool) -> list[Hold]:
    """Return the holds in force, the oldest first."""
    return await holds.IN_FORCE.fetch(pool)


# -- holds ----------------------------------------------------------------------------------------


async def _lay(connection: Conn, on: QueueTarget, reason: str, until: datetime | None) -> Hold:
    laid = await holds.PUT.first(connection, ids.uuid7(), on.kind.value, on.target, reason, until)
    assert laid is not None
    await caches.bump(connection, holds.KIND)
    return laid


async def _record(pool: asyncpg.Pool, action: str, on: QueueTarget, detail: dict[str, object], actor: str) -> None:
    """Record a change before it is made, as its transactions are many. Raises 404 for an unknown account."""
    async with pool.acquire() as connection, connection.transaction():
        await _check_account(connection, on)
        await record_platform_change(connection, action, _named(on) | detail, actor=actor)


async def _check_account(connection: Conn, on: QueueTarget) -> None:
    if on.account is not None and await accounts.READ.first(connection, on.account) is None:
        raise not_found("account")


def _named(on: QueueTarget) -> dict[str, object]:
    return {"kind": on.kind.value, "target": on.target}


def checked_reason(text: str) -> str:
    """Return the reason as one line of printable characters; raises ValueError."""
    words = " ".join(text.split())
    if not 1 <= len(words) <= holds.MAX_REASON or not words.isprintable():
        raise ValueError(f"the reason must have 1 to {holds.MAX_REASON} printable characters; the waybill shows it")
    return words


async def _finish_ended(pool: asyncpg.Pool, *, note: str | None = None, of: UUID | None = None) -> int:
    """Release the rows of all ended holds; return how many belonged to hold `of`."""
    returned = 0
    for ended in await holds.ENDED.fetch(pool):
        anywhere = QueueTarget(HoldKind(ended.kind), ended.target)
        last = UUID(int=(1 << 128) - 1)
        total = await _count(pool, anywhere, ended.id, last)
        detail: dict[str, object] = {"reason": QueuedReason.OPERATOR_RELEASE, "note": note}
        back = await _bring_forward(pool, anywhere, ended.id, total, last, detail)
        await holds.FORGET.execute(pool, ended.id)
        if ended.id == of:
            returned = back
    return returned


# -- rows -----------------------------------------------------------------------------------------


async def _each(
    pool: asyncpg.Pool,
    on: QueueTarget,
    work: Callable[[Conn, list[Row]], Awaitable[int]],
    *,
    under: UUID | None = None,
    last: UUID | None = None,
) -> int:
    """Run `work` on all rows of the target, one transaction per chunk; return the sum of its results."""
    end = last or UUID(int=(1 << 128) - 1)
    message, domain, done = _NOWHERE, "", 0
    while True:
        domains = None if on.domains is None else list(on.domains)
        async with pool.acquire() as connection, connection.transaction():
            rows = await _OWED.fetch(connection, CHUNK, message, domain, end, domains, on.account, on.message, under)
            if not rows:
                return done
            done += await work(connection, rows)
        message, domain = rows[-1].key


async def _count(pool: asyncpg.Pool, on: QueueTarget, under: UUID | None, last: UUID) -> int:
    domains = None if on.domains is None else list(on.domains)
    return int((await _COUNT.records(pool, last, domains, on.account, on.message, under))[0]["rows"])


async def _bring_forward(
    pool: asyncpg.Pool, on: QueueTarget, under: UUID | None, total: int, last: UUID, detail: dict[str, object]
) -> int:
    """Make rows due one after the other from now on, oldest message first, and record that on their waybills."""
    time = await DatabaseClock.read(pool)
    began = time.now()
    rate = max(MIN_RELEASED_PER_S, total / MAX_RELEASE_S)
    placed = 0

    async def bring(connection: Conn, rows: list[Row]) -> int:
        nonlocal placed
        now = time.now()
        later = rows if under is not None else [row for row in rows if row.due_at > now]
        due = {}
        for row in later:
            due[row.key] = max(now, began + timedelta(seconds=(placed + random.random()) / rate))
            placed += 1
        if not due:
            return 0
        await heads.lock(connection, {row.account_id for row in later})
        moments = [(*key, at) for key, at in due.items()]
        moved = await _BRING_FORWARD.records(connection, *columns(moments, 3), under)
        back = {(one["message_id"], one["domain"]) for one in moved}
        notes = ((row, detail | {"until": clock.iso(due[row.key])}) for row in later if row.key in back)
        await postpone.add_queued_events(connection, notes, now)
        return len(back)

    return await _each(pool, on, bring, under=under, last=last)


def _ending(why: UntriedReason, diagnostic: str) -> Callable[[Conn, list[Row]], Awaitable[int]]:
    """Return work that ends rows without another attempt."""

    async def end(connection: Conn, rows: list[Row]) -> int:
        await heads.lock(connection, {row.account_id for row in rows})
        locked = await _LOCK.records(connection, *columns([row.key for row in rows], 2))
        attempts = {(one["message_id"], one["domain"]): one["attempts"] for one in locked}
        plans = [settle.plan(_attempt(row, why, diagnostic)) for row in rows if attempts.get(row.key) == row.attempts]
        if plans:
            await settle.write(connection, plans)
        return len(plans)

    return end


def _attempt(row: Row, why: UntriedReason, diagnostic: str) -> DeliveryAttempt:
    """Return an attempt that ends the row without a delivery try."""
    now = clock.now()
    outcome = Outcome(
        Verdict.DEFERRED,
        Scope.MESSAGE,
        Category.OPERATOR,
        suppress=False,
        smtp_code=None,
        enhanced_code=None,
        diagnostic=diagnostic,
    )
    results = tuple(Result(place, address, outcome) for place, address in row.pairs)
    return DeliveryAttempt(
        row=row,
        started_at=now,
        ended_at=now,
        results=results,
        conversation=None,
        signature=None,
        next_at=None,
        untried=why,
    )
