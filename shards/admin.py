"""Change the placement of shards for the operator: move, drain, weigh, balance, split and merge.

A caller makes a plan from the present state, carries it out, and may watch the progress. Carrying out writes rows; the
mta processes do the work, so a caller can stop at any time, and make the same plan again to watch.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.process_names import label_of, node_of
from engine.base.settings import Settings
from engine.delivery import splits
from engine.delivery.partition import parts_of
from engine.delivery.splits import SplitAuthor
from engine.ledger.platform_log import OPERATOR, record_platform_change
from engine.mail.address import BadAddress, domain_name
from engine.store.queries import Conn, Queries
from shards import lease, overview, placement
from shards.overview import KnownShards
from shards.placement import PlacementRules
from shards.ring import moves

WATCH_S = 0.5
MAX_PARTS = 64
MAX_WHY = 200  # characters

_SQL = Queries.beside(__file__, "admin.sql")
_OF_DOMAIN = _SQL.command("rows_of_domain")


class ShardPlan(Struct, kw_only=True):
    """A change that is about to be made: `words` and `steps` describe it, `why` is the operator's reason.

    `apply` writes it, within a transaction; `left` returns how many of `total` steps are unfinished.
    """

    action: str
    words: dict[str, Any]
    why: str
    steps: list[dict[str, Any]]
    total: int
    apply: Callable[[Conn], Awaitable[None]]
    left: Callable[[asyncpg.Pool], Awaitable[int]]


# -- plan --------------------------------------------------------------------------------------


async def plan_move(
    pool: asyncpg.Pool, settings: Settings, shards: Sequence[int], to: str | None, *, why: str
) -> ShardPlan:
    """Plan to pin shards to a member or node, or with `to` None to remove their pins; raises ValueError."""
    known = await overview.known(pool, settings)
    unknown = [shard for shard in shards if not 0 <= shard < settings.shards]
    if unknown or not shards:
        raise ValueError(f"There are no shards {unknown}. Shards are numbered from 0 to {settings.shards - 1}.")
    wanted = sorted(set(shards))
    if to is None:
        kept = tuple(pin for pin in known.live.pins if pin.shard not in wanted)
        words = {"unpin": wanted}
        return _plan_owners(
            "move_shards", known, _with(known.live, pins=kept), words, lambda db: placement.unpin(db, wanted), why=why
        )
    target = _target(known, to)
    pins = [pin for pin in known.live.pins if pin.shard not in wanted]
    pins += [placement.Pin(shard, target, why, clock.now()) for shard in wanted]
    return _plan_owners(
        "move_shards", known, _with(known.live, pins=tuple(pins)), {"pin": wanted, "to": label_of(target)},
        lambda db: placement.pin(db, wanted, target, _short(why)), why=why,
    )  # fmt: skip


async def plan_place(
    pool: asyncpg.Pool, settings: Settings, name: str, *, weight: float | None, draining: bool | None, why: str
) -> ShardPlan:
    """Plan a new weight or draining state of a member or node; None keeps the current one. Raises ValueError."""
    known = await overview.known(pool, settings)
    target = _target(known, name)
    before = next((one for one in known.live.policies if one.name == target), None)
    if before is None:
        before = placement.MemberPolicy(target, 1.0, draining=False, why="", changed_at=clock.now())
    after = placement.MemberPolicy(
        target, before.weight if weight is None else weight, before.draining if draining is None else draining,
        _short(why), clock.now(),
    )  # fmt: skip
    places = (*(one for one in known.live.policies if one.name != target), after)
    live = _with(known.live, places=places)
    if after.draining and not _has_active_member(known, live):
        raise ValueError(f"No other mta process could take the shards of {label_of(target)}. Start another one first.")
    words = {"place": label_of(target), "weight": after.weight, "draining": after.draining}
    return _plan_owners(
        "place_member", known, live, words,
        lambda db: placement.set_member_policy(db, target, weight=after.weight, draining=after.draining, why=after.why),
        why=why,
    )  # fmt: skip


async def plan_balance(pool: asyncpg.Pool, settings: Settings, *, by_count: bool) -> ShardPlan:
    """Plan to distribute shards by the load of the last minute, or by count; raises ValueError if no load is known."""
    known = await overview.known(pool, settings)
    if by_count:
        live = PlacementRules(known.live.pins, known.live.policies, None)
        return _plan_owners("balance_shards", known, live, {"balance": "by count"}, placement.delete_load_plan, why="")
    if sum(known.rates.values()) <= 0:
        raise ValueError("No load was measured in the last minute. Balance by count to distribute the shards evenly.")
    why = f"{sum(known.rates.values()):.1f}/s measured"
    planned = placement.ShardLoadPlan(known.rates, SplitAuthor.OPERATOR.value, why, clock.now())
    live = PlacementRules(known.live.pins, known.live.policies, planned)
    return _plan_owners(
        "balance_shards", known, live, {"balance": "by load", "measured": why},
        lambda db: placement.write_load_plan(db, known.rates, whose=SplitAuthor.OPERATOR, why=why), why="",
    )  # fmt: skip


async def plan_split(pool: asyncpg.Pool, settings: Settings, domain: str, parts: int | None, *, why: str) -> ShardPlan:
    """Plan to split a domain into `parts` shards; 1 merges it, None leaves it to the rule. Raises ValueError."""
    name = _domain(domain)
    most = min(MAX_PARTS, settings.shards)
    if parts is not None and not 1 <= parts <= most:
        raise ValueError(f"A domain can't have {parts} parts. Give 2 to {most}.")
    before = await splits.ONE.first(pool, name)
    now, then = 1 if before is None else before.parts, parts or 1
    if parts is None and before is None and not await _under_way(pool, name):
        raise ValueError(f"{name} is not split. The overview of the shards lists the split domains.")
    there = parts_of(name, settings.shards, now)
    homes = parts_of(name, settings.shards, then)
    waiting = int((await _OF_DOMAIN.records(pool, name, there))[0]["rows"])

    async def apply(connection: Conn) -> None:
        if parts is None:
            await splits.forget(connection, name, shards=settings.shards)
        else:
            await splits.change(
                connection, name, parts, shards=settings.shards, whose=SplitAuthor.OPERATOR, why=_short(why)
            )

    async def left(pool: asyncpg.Pool) -> int:
        return await _under_way(pool, name)

    return ShardPlan(
        action="split_domain", why=_short(why),
        words={"domain": name, "parts": then, "now": now, "rowsWaiting": waiting},
        steps=[{"shard": shard, "now": shard in there, "then": shard in homes} for shard in sorted({*there, *homes})],
        total=max(await _under_way(pool, name), 0 if now == then else len(there)), apply=apply, left=left,
    )  # fmt: skip


def _plan_owners(
    action: str,
    known: KnownShards,
    live: PlacementRules,
    words: dict[str, Any],
    apply: Callable[[Conn], Awaitable[None]],
    *,
    why: str,
) -> ShardPlan:
    """Return a plan whose steps are changes of owners."""
    wanted, names = known.wanted(live), known.names()
    changes = sorted(moves(known.owners, wanted).items())
    steps: list[dict[str, Any]] = [
        {
            "shard": shard,
            "from": _named(names, old),
            "to": _named(names, new),
            "rate": round(known.rates.get(shard, 0.0), 1),
        }
        for shard, (old, new) in changes
    ]
    homes = {shard: names[new] for shard, (_, new) in changes}

    async def left(pool: asyncpg.Pool) -> int:
        """Count shards that don't have their new owner yet; by name, because a member may restart meanwhile."""
        members = {one.id: one.name for one in await lease.MEMBERS.fetch(pool)}
        owners = await lease.OWNERS.fetch(pool, known.shards)
        at = {row.shard: members.get(row.owner) if row.owner else None for row in owners if row.alive}
        return sum(at.get(shard) != home for shard, home in homes.items())

    return ShardPlan(
        action=action, words=words | {"shardsToMove": len(steps)}, why=_short(why), steps=steps, total=len(steps),
        apply=apply, left=left,
    )  # fmt: skip


# -- apply -------------------------------------------------------------------------------------


async def carry_out(pool: asyncpg.Pool, plan: ShardPlan, *, actor: str = OPERATOR) -> None:
    """Write the plan and its event in one transaction; the mta processes then carry it out without the caller."""
    async with pool.acquire() as connection, connection.transaction():
        await record_platform_change(connection, plan.action, plan.words | {"reason": plan.why}, actor=actor)
        await plan.apply(connection)


async def watch(pool: asyncpg.Pool, plan: ShardPlan, timeout_s: float) -> AsyncIterator[int]:
    """Yield the number of unfinished steps every 0.5 s, until it is 0 or `timeout_s` is over."""
    ends = time.monotonic() + timeout_s
    while True:
        left = await plan.left(pool)
        yield left
        if not left or time.monotonic() >= ends:
            return
        await asyncio.sleep(WATCH_S)


# -- names -------------------------------------------------------------------------------------


def _target(known: KnownShards, text: str) -> str:
    """Return the member or node with this name or label; raises ValueError unless exactly one matches."""
    names = sorted({one.name for one in known.members})
    nodes = sorted({node_of(name) for name in names} | {one.name for one in known.live.policies if ":" not in one.name})
    if text in nodes or text in names:
        return text
    placed = [one.name for one in known.live.policies]
    found = sorted({name for name in (*names, *placed) if text in (label_of(name), name.rpartition(":")[2], name)})
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{text} is ambiguous. Give one of: {_listed(map(label_of, found))}.")
    raise ValueError(f"There is no member or node {text}. There are: {_listed([*map(label_of, names), *nodes])}.")


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"


def _named(names: Mapping[str, str], member: str | None) -> str | None:
    return None if member is None or member not in names else label_of(names[member])


def _has_active_member(known: KnownShards, live: PlacementRules) -> bool:
    draining = {one.name for one in live.policies if one.draining}
    return any(one.name not in draining and node_of(one.name) not in draining for one in known.members)


def _domain(text: str) -> str:
    name = text.strip().rstrip(".").lower()
    try:
        return domain_name(name) if name.isascii() else name
    except BadAddress:
        raise ValueError(f"{text!r} is not a domain name.") from None


def _with(
    live: PlacementRules,
    *,
    pins: Collection[placement.Pin] | None = None,
    places: Collection[placement.MemberPolicy] | None = None,
) -> PlacementRules:
    return PlacementRules(
        live.pins if pins is None else tuple(pins), live.policies if places is None else tuple(places), live.plan
    )


def _short(why: str) -> str:
    return why.strip()[:MAX_WHY]


async def _under_way(pool: asyncpg.Pool, domain: str) -> int:
    return next((one.shards for one in await overview.RESHARDINGS.fetch(pool) if one.domain == domain), 0)
