"""The operator's levers on the queue: suspend, resume, flush and bounce, by domain, account, message or site.

Each works through the queue in small transactions, oldest message first, while mail flows; it writes what it does on
each waybill, and one that is broken off is simply pulled again. What comes back is spread over time: no herd.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.account import store as accounts
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import AccountEvent
from engine.delivery import holds
from engine.delivery.holds import Hold, HoldKind
from engine.delivery.outcome import Category, Outcome, Scope, Verdict
from engine.delivery.queue import Row
from engine.flows.sending import postpone, settle
from engine.flows.sending.settle import Attempt, Result
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.mail.address import domain_name
from engine.store import caches
from engine.store.database_clock import DatabaseClock
from engine.store.queries import Conn, Queries, columns

CHUNK = 250  # rows a transaction: their accounts' heads are locked for some 20 ms
BACK_PER_S = 200.0  # rows a second that come back, at least
MAX_BACK_S = 600.0  # however many they are
HEARD_S = 1.5  # until every process knows of a hold and has put aside what it had in hand
BOUNCING = timedelta(hours=1)  # how long the hold of a bounce may outlive a command that died
OPERATOR = "operator"  # who did it, in the account's log
EXPIRED = "the time this message was to be delivered by passed while the operator held it back"

_SQL = Queries.beside(__file__, "queue_admin.sql")
_OWED = _SQL.rows("owed_rows", Row)
_COUNT = _SQL.command("count_owed")
_BRING_FORWARD = _SQL.command("bring_forward")
_LOCK = _SQL.command("lock_rows")
_NOWHERE = UUID(int=0)


class Chosen(Struct, frozen=True):
    """What a lever is pulled on. `domains` are those whose rows are meant: of a site all that lead to it, None for all
    there are."""

    kind: HoldKind
    target: str
    domains: tuple[str, ...] | None = None
    account: UUID | None = None
    message: UUID | None = None


def chosen(kind: HoldKind, target: str, site_domains: Sequence[str] = ()) -> Chosen:
    """A lever's target from the operator's words; raises WrongId or BadAddress. `site_domains` belong to a site."""
    match kind:
        case HoldKind.ACCOUNT:
            return Chosen(kind, target, account=ids.parse_id(ids.Kind.ACCOUNT, target))
        case HoldKind.MESSAGE:
            return Chosen(kind, target, message=ids.parse_id(ids.Kind.MESSAGE, target))
        case HoldKind.DOMAIN:
            name = domain_name(target)
            return Chosen(kind, name, domains=(name,))
        case HoldKind.SITE:
            everywhere = target == holds.EVERYWHERE
            return Chosen(kind, target.lower(), domains=None if everywhere else tuple(site_domains))


async def suspend(pool: asyncpg.Pool, on: Chosen, *, reason: str, until: datetime | None = None) -> int:
    """Hold deliveries back until `until`, or until `resume`; returns how many rows were due and wait from now on.

    Later ones, and mail that is accepted meanwhile, are put under the hold when they fall due. A hold that stands
    already gets the new reason and end. Raises ValueError for an empty or long reason, 404 for an unknown account.
    """
    laid = await _lay(pool, on, reason, until)
    await _finish_ended(pool)
    time = await DatabaseClock.read(pool)
    soon = time.now() + timedelta(seconds=60)

    async def put(connection: Conn, rows: list[Row]) -> int:
        due = [(row, laid) for row in rows if row.due_at <= soon]
        return await postpone.hold_rows(connection, due, time.now()) if due else 0

    return await _each(pool, on, put)


async def resume(pool: asyncpg.Pool, on: Chosen, *, note: str | None = None) -> int | None:
    """Lift the hold on a target; returns how many rows come back, spread over time, or None where nothing is held."""
    async with pool.acquire() as connection, connection.transaction():
        ended = await holds.END.first(connection, on.kind.value, on.target)
        if ended is None:
            return None
        await caches.bump(connection, holds.KIND)
        if on.account is not None:
            await record_event(
                connection,
                on.account,
                AccountEvent.DELIVERY_RESUMED,
                {"reason": note or ended.reason},
                actor=OPERATOR,
            )
    return await _finish_ended(pool, note=note, of=ended.id)


async def flush(pool: asyncpg.Pool, on: Chosen, *, note: str | None = None) -> int:
    """Try again now what waits for its next try, spread over time; what is held stays held. Returns how many rows."""
    last = ids.floor_of(clock.milliseconds(clock.now()) + 1)
    total = await _count(pool, on, None, last)
    return await _bring_forward(pool, on, None, total, last, {"reason": "operator_flush", "note": note})


async def bounce(pool: asyncpg.Pool, on: Chosen, *, reason: str, heard_s: float = HEARD_S) -> int:
    """Give up the recipients that wait: they end `failed` with the operator's reason, never suppressed, never counted
    as bounces of the account. Returns how many rows.

    Meanwhile the target is held, so that no process takes up what is being given up; a message on the wire at that
    very moment may still arrive.
    """
    last = ids.floor_of(clock.milliseconds(clock.now()) + 1)  # what is accepted from now on goes its way
    standing = {(one.kind, one.target) for one in await holds.IN_FORCE.fetch(pool)}
    lent = (on.kind.value, on.target) not in standing
    if lent:
        await _lay(pool, on, reason, clock.now() + BOUNCING, quiet=True)
    try:
        await asyncio.sleep(heard_s)
        return await _each(pool, on, _failing(_given_up(reason)), last=last)
    finally:
        if lent:
            async with pool.acquire() as connection, connection.transaction():
                await holds.END.execute(connection, on.kind.value, on.target)
                await caches.bump(connection, holds.KIND)
            await _finish_ended(pool)


async def finish(pool: asyncpg.Pool) -> None:
    """Bring back the rows of all holds that have ended, whoever ended them: after the end of a suspension, and in the
    background for those whose command died on the way."""
    await _finish_ended(pool)


async def standing(pool: asyncpg.Pool) -> list[Hold]:
    """The holds in force, the oldest first."""
    return await holds.IN_FORCE.fetch(pool)


# -- holds ----------------------------------------------------------------------------------------


async def _lay(pool: asyncpg.Pool, on: Chosen, reason: str, until: datetime | None, *, quiet: bool = False) -> Hold:
    words = " ".join(reason.split())
    if not 1 <= len(words) <= holds.MAX_REASON or not words.isprintable():
        raise ValueError(f"a reason has 1 to {holds.MAX_REASON} printable characters: the waybill shows it")
    if until is not None and until <= clock.now():
        raise ValueError("a hold ends in the future")
    async with pool.acquire() as connection, connection.transaction():
        if on.account is not None and await accounts.READ.first(connection, on.account) is None:
            raise not_found("account")
        laid = await holds.PUT.first(connection, ids.uuid7(), on.kind.value, on.target, words, until)
        assert laid is not None
        await caches.bump(connection, holds.KIND)
        if on.account is not None and not quiet:
            end = None if until is None else clock.iso(until)
            detail = {"reason": words, "until": end}
            await record_event(connection, on.account, AccountEvent.DELIVERY_SUSPENDED, detail, actor=OPERATOR)
    return laid


async def _finish_ended(pool: asyncpg.Pool, *, note: str | None = None, of: UUID | None = None) -> int:
    """Bring the rows of ended holds back, those of a command that died on the way too; returns how many were `of`'s."""
    returned = 0
    for ended in await holds.ENDED.fetch(pool):
        anywhere = Chosen(HoldKind(ended.kind), ended.target)
        last = UUID(int=(1 << 128) - 1)
        total = await _count(pool, anywhere, ended.id, last)
        # Those whose time has passed first: they would be tried once more otherwise.
        late = await _each(pool, anywhere, _failing(_too_late), under=ended.id)
        told: dict[str, object] = {"reason": "operator_release", "note": note}
        back = await _bring_forward(pool, anywhere, ended.id, total - late, last, told)
        await holds.FORGET.execute(pool, ended.id)
        if ended.id == of:
            returned = late + back
    return returned


# -- rows -----------------------------------------------------------------------------------------


async def _each(
    pool: asyncpg.Pool,
    on: Chosen,
    work: Callable[[Conn, list[Row]], Awaitable[int]],
    *,
    under: UUID | None = None,
    last: UUID | None = None,
) -> int:
    """Do `work` on all chosen rows, a transaction a chunk; returns the sum of what it returned."""
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


async def _count(pool: asyncpg.Pool, on: Chosen, under: UUID | None, last: UUID) -> int:
    domains = None if on.domains is None else list(on.domains)
    return int((await _COUNT.records(pool, last, domains, on.account, on.message, under))[0]["rows"])


async def _bring_forward(
    pool: asyncpg.Pool, on: Chosen, under: UUID | None, total: int, last: UUID, told: dict[str, object]
) -> int:
    """Make rows due one after the other from now on, oldest message first; tells each when."""
    time = await DatabaseClock.read(pool)
    began = time.now()
    rate = max(BACK_PER_S, total / MAX_BACK_S)
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
        notes = ((row, told | {"until": clock.iso(due[row.key])}) for row in later if row.key in back)
        await postpone.tell(connection, notes, now)
        return len(back)

    return await _each(pool, on, bring, under=under, last=last)


def _failing(why: Callable[[Row], str | None]) -> Callable[[Conn, list[Row]], Awaitable[int]]:
    """Work that ends rows as `failed` for the reason given; None lets a row be."""

    async def fail(connection: Conn, rows: list[Row]) -> int:
        reasons = {row.key: text for row in rows if (text := why(row)) is not None}
        ending = [row for row in rows if row.key in reasons]
        if not ending:
            return 0
        await heads.lock(connection, {row.account_id for row in ending})
        locked = await _LOCK.records(connection, *columns([row.key for row in ending], 2))
        stand = {(one["message_id"], one["domain"]): one["attempts"] for one in locked}
        plans = [settle.plan(_attempt(row, reasons[row.key])) for row in ending if stand.get(row.key) == row.attempts]
        if plans:
            await settle.write(connection, plans)
        return len(plans)

    return fail


def _given_up(reason: str) -> Callable[[Row], str | None]:
    return lambda _: f"given up by the operator: {' '.join(reason.split())}"


def _too_late(row: Row) -> str | None:
    return EXPIRED if row.deliver_by is not None and row.deliver_by <= clock.now() else None


def _attempt(row: Row, diagnostic: str) -> Attempt:
    """No attempt at all, but an end: nothing was tried and nothing is tried again."""
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
    return Attempt(
        row=row,
        started_at=now,
        ended_at=now,
        results=results,
        conversation=None,
        signature=None,
        next_at=None,
        made=False,
    )
