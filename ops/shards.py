"""Implementation of `ops shards`: show owners and load of shards; move, drain, balance, split and merge under load.

A command reads the state, makes a plan, writes rows and watches the progress. The mta processes do the work, so a
command can be interrupted at any time and run again to watch.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import splits
from engine.delivery.partition import parts_of
from engine.delivery.splits import Split, SplitAuthor
from engine.mail.address import BadAddress, domain_name
from engine.store.queries import Conn, Queries
from shards import lease, load, placement
from shards.lease import MemberRow
from shards.placement import PlacementRules, label_of, node_of
from shards.ring import assign, burdens, costs, moves

WATCH_S = 0.5
MAX_PARTS = 64
MAX_WHY = 200  # characters

_SQL = Queries.beside(__file__, "shards.sql")


class ShardRow(Struct, frozen=True):
    """A shard: owner, pending rows, pin and rate."""

    shard: int
    owner: str | None
    epoch: int
    rows: int
    oldest_due: datetime | None
    pinned: str | None
    rate: float | None


class ReshardingRow(Struct, frozen=True):
    """A domain whose queue rows are being moved to other shards."""

    domain: str
    shards: int
    moved: int


_ROWS = _SQL.rows("shard_rows", ShardRow)
_REHOMINGS = _SQL.rows("rehomings", ReshardingRow)
_OF_DOMAIN = _SQL.command("rows_of_domain")


class ShardPlan(Struct, kw_only=True):
    """The change that a command is about to make.

    `apply` writes it, within a transaction; `left` returns how many of `total` steps are unfinished.
    """

    words: dict[str, Any]
    steps: list[dict[str, Any]]
    total: int
    apply: Callable[[Conn], Awaitable[None]]
    left: Callable[[asyncpg.Pool], Awaitable[int]]


class _Known(Struct, frozen=True):
    """Snapshot of members, owners, rates and the operator's placement rules."""

    shards: int
    members: list[MemberRow]
    live: PlacementRules
    owners: dict[int, str]  # member ids
    rates: dict[int, float]

    def names(self) -> dict[str, str]:
        """Return member names by id."""
        return {str(one.id): one.name for one in self.members}

    def wanted(self, live: PlacementRules) -> dict[int, str]:
        """Return the owner of each shard that the rules in `live` would give."""
        weights, pins = placement.weights_of(self.members, live), placement.pins_of(self.members, live)
        return assign(self.shards, weights, self.owners, pins=pins, loads=live.loads)


# -- show --------------------------------------------------------------------------------------


async def show(pool: asyncpg.Pool, settings: Settings, *, limit: int | None) -> dict[str, Any]:
    """Return all members, the busiest shards, splits, and moves in progress.

    `lagS` is how long the oldest due row has waited, `rate` messages per second over the last minute, `burden` a
    member's load relative to its share (1.0 is fair).
    """
    known, now = await _known(pool, settings), clock.now()
    rows = await _ROWS.fetch(pool, settings.shards, load.MAX_AGE_S)
    rows.sort(key=lambda one: (-(one.rate or 0.0), -one.rows, one.shard))
    weights = placement.weights_of(known.members, known.live)
    by_name = {one.name: weights[str(one.id)] for one in known.members}
    moving = {one.domain: one for one in await _REHOMINGS.fetch(pool)}
    chosen = await splits.ALL.fetch(pool)
    plan = known.live.plan
    return {
        "balancedBy": "count" if plan is None else f"load of {clock.iso(plan.changed_at)} ({plan.whose}: {plan.why})",
        "members": _members(known, rows),
        "shards": [_row(one, by_name, now) for one in rows[:limit]],
        "splits": [_split(one, moving.get(one.domain)) for one in chosen]
        + [_split(Split(one.domain, 1, "", "", now), one) for one in moving.values() if one.domain not in
           {split.domain for split in chosen}],
    }  # fmt: skip


def _members(known: _Known, rows: Sequence[ShardRow]) -> list[dict[str, Any]]:
    weights = placement.weights_of(known.members, known.live)
    counts, waiting = Counter(known.owners.values()), Counter[str]()
    rates: dict[str, float] = {}
    for row in rows:
        if row.owner is not None:
            waiting[row.owner] += row.rows
            rates[row.owner] = rates.get(row.owner, 0.0) + (row.rate or 0.0)
    carried = burdens({name: one for name, one in weights.items() if one > 0}, known.owners,
                      costs(known.shards, known.rates))  # fmt: skip
    rules = {one.name: one for one in known.live.policies}
    found = []
    for one in sorted(known.members, key=lambda one: one.name):
        words = [place for place in (rules.get(one.name), rules.get(node_of(one.name))) if place is not None]
        found.append(
            {
                "member": label_of(one.name),
                "shards": counts[str(one.id)],
                "waiting": waiting[one.name],
                "rate": round(rates.get(one.name, 0.0), 1),
                "burden": round(carried.get(str(one.id), 0.0), 2),
                "weight": round(weights[str(one.id)], 2),
                "draining": any(place.draining for place in words),
                "why": "; ".join(place.why for place in words if place.why),
            }
        )
    return found


def _row(one: ShardRow, weights: Mapping[str, float], now: datetime) -> dict[str, Any]:
    lag = 0.0 if one.oldest_due is None else max(0.0, (now - one.oldest_due).total_seconds())
    return {
        "shard": one.shard,
        "owner": None if one.owner is None else label_of(one.owner),
        "waiting": one.rows,
        "oldestDue": None if one.oldest_due is None else clock.iso(one.oldest_due),
        "lagS": round(lag, 1),
        "rate": round(one.rate or 0.0, 1),
        "weight": round(weights.get(one.owner or "", 0.0), 2),
        "epoch": one.epoch,
        "pinned": None if one.pinned is None else label_of(one.pinned),
    }


def _split(one: Split, moving: ReshardingRow | None) -> dict[str, Any]:
    return {
        "domain": one.domain,
        "parts": one.parts,
        "whose": one.whose,
        "why": one.why,
        "since": clock.iso(one.changed_at),
        "movedRows": None if moving is None else moving.moved,
        "shardsToLookAt": 0 if moving is None else moving.shards,
    }


async def _known(pool: asyncpg.Pool, settings: Settings) -> _Known:
    members, live = await lease.MEMBERS.fetch(pool), await placement.read(pool)
    owners = await lease.OWNERS.fetch(pool, settings.shards)
    rates = {one.shard: one.rate for one in await load.SHARD_RATES.fetch(pool, load.MAX_AGE_S)}
    return _Known(settings.shards, members, live, {row.shard: str(row.owner) for row in owners if row.alive}, rates)


# -- plan --------------------------------------------------------------------------------------


async def plan_move(
    pool: asyncpg.Pool, settings: Settings, shards: Sequence[int], to: str | None, *, why: str
) -> ShardPlan:
    """Plan to pin shards to a member or node, or with `to` None to remove their pins; raises ValueError."""
    known = await _known(pool, settings)
    unknown = [shard for shard in shards if not 0 <= shard < settings.shards]
    if unknown or not shards:
        raise ValueError(f"There are no shards {unknown}. Shards are numbered from 0 to {settings.shards - 1}.")
    wanted = sorted(set(shards))
    if to is None:
        kept = tuple(pin for pin in known.live.pins if pin.shard not in wanted)
        return _plan_owners(
            known, _with(known.live, pins=kept), {"unpin": wanted}, lambda db: placement.unpin(db, wanted)
        )
    target = _target(known, to)
    pins = [pin for pin in known.live.pins if pin.shard not in wanted]
    pins += [placement.Pin(shard, target, why, clock.now()) for shard in wanted]
    words = {"pin": wanted, "to": label_of(target)}
    return _plan_owners(
        known, _with(known.live, pins=tuple(pins)), words, lambda db: placement.pin(db, wanted, target, _short(why))
    )


async def plan_place(
    pool: asyncpg.Pool, settings: Settings, name: str, *, weight: float | None, draining: bool | None, why: str
) -> ShardPlan:
    """Plan a new weight or draining state of a member or node; None keeps the current one. Raises ValueError."""
    known = await _known(pool, settings)
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
        known, live, words,
        lambda db: placement.set_member_policy(db, target, weight=after.weight, draining=after.draining, why=after.why),
    )  # fmt: skip


async def plan_balance(pool: asyncpg.Pool, settings: Settings, *, by_count: bool) -> ShardPlan:
    """Plan to distribute shards by the load of the last minute, or by count; raises ValueError if no load is known."""
    known = await _known(pool, settings)
    if by_count:
        live = PlacementRules(known.live.pins, known.live.policies, None)
        return _plan_owners(known, live, {"balance": "by count"}, placement.delete_load_plan)
    if sum(known.rates.values()) <= 0:
        raise ValueError("No load was measured in the last minute. Use --by-count to distribute the shards evenly.")
    why = f"{sum(known.rates.values()):.1f}/s measured"
    planned = placement.ShardLoadPlan(known.rates, SplitAuthor.OPERATOR.value, why, clock.now())
    live = PlacementRules(known.live.pins, known.live.policies, planned)
    return _plan_owners(
        known, live, {"balance": "by load", "measured": why},
        lambda db: placement.write_load_plan(db, known.rates, whose=SplitAuthor.OPERATOR, why=why),
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
        raise ValueError(f"{name} is not split. `ops shards` lists the split domains.")
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
        words={"domain": name, "parts": then, "now": now, "rowsWaiting": waiting},
        steps=[{"shard": shard, "now": shard in there, "then": shard in homes} for shard in sorted({*there, *homes})],
        total=max(await _under_way(pool, name), 0 if now == then else len(there)), apply=apply, left=left,
    )  # fmt: skip


def _plan_owners(
    known: _Known, live: PlacementRules, words: dict[str, Any], apply: Callable[[Conn], Awaitable[None]]
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

    return ShardPlan(words=words | {"shardsToMove": len(steps)}, steps=steps, total=len(steps), apply=apply, left=left)


# -- apply -------------------------------------------------------------------------------------


async def carry_out(pool: asyncpg.Pool, plan: ShardPlan) -> None:
    """Write the plan in one transaction; the mta processes then carry it out without this command."""
    async with pool.acquire() as connection, connection.transaction():
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


def _target(known: _Known, text: str) -> str:
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


def _has_active_member(known: _Known, live: PlacementRules) -> bool:
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
    return next((one.shards for one in await _REHOMINGS.fetch(pool) if one.domain == domain), 0)
