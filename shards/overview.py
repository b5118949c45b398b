"""Overview of the shards for the operator: members, owners, load, pending deliveries and splits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.base.process_names import label_of, node_of
from engine.base.settings import Settings
from engine.delivery import splits
from engine.delivery.splits import Split
from engine.store.queries import Queries
from shards import lease, load, placement
from shards.lease import MemberRow
from shards.placement import PlacementRules
from shards.ring import assign, burdens, costs

_SQL = Queries.beside(__file__, "overview.sql")


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


class PlacedMember(Struct, frozen=True, rename="camel"):
    """An mta process. `rate` is in messages per second over the last minute, `burden` its load relative to its share
    (1.0 is fair), `why` the reasons of the rules that apply to it.
    """

    member: str
    shards: int
    waiting: int
    rate: float
    burden: float
    weight: float
    draining: bool
    why: str


class ShardState(Struct, frozen=True, rename="camel"):
    """A shard with its owner and pending deliveries; `lagS` is how long the oldest due one has waited, in seconds."""

    shard: int
    owner: str | None
    waiting: int
    oldest_due: str | None
    lag_s: float
    rate: float
    weight: float
    epoch: int
    pinned: str | None


class SplitState(Struct, frozen=True, rename="camel"):
    """A split domain, and while its rows move, how many have moved and how many shards are still to be looked at."""

    domain: str
    parts: int
    whose: str
    why: str
    since: str
    moved_rows: int | None
    shards_to_look_at: int


class ShardOverview(Struct, frozen=True, rename="camel"):
    """All members, the busiest shards, the splits and the moves in progress."""

    balanced_by: str
    members: list[PlacedMember]
    shards: list[ShardState]
    splits: list[SplitState]


_ROWS = _SQL.rows("shard_rows", ShardRow)
RESHARDINGS = _SQL.rows("rehomings", ReshardingRow)


class KnownShards(Struct, frozen=True):
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


async def overview(pool: asyncpg.Pool, settings: Settings, *, limit: int | None) -> ShardOverview:
    """Return all members, the `limit` busiest shards (None: all), splits, and moves in progress."""
    found, now = await known(pool, settings), clock.now()
    rows = await _ROWS.fetch(pool, settings.shards, load.MAX_AGE_S)
    rows.sort(key=lambda one: (-(one.rate or 0.0), -one.rows, one.shard))
    weights = placement.weights_of(found.members, found.live)
    by_name = {one.name: weights[str(one.id)] for one in found.members}
    plan = found.live.plan
    return ShardOverview(
        balanced_by="count" if plan is None else f"load of {clock.iso(plan.changed_at)} ({plan.whose}: {plan.why})",
        members=_members(found, rows),
        shards=[_state(one, by_name, now) for one in rows[:limit]],
        splits=_splits(await splits.ALL.fetch(pool), await RESHARDINGS.fetch(pool), now),
    )


async def known(pool: asyncpg.Pool, settings: Settings) -> KnownShards:
    """Read the snapshot."""
    members, live = await lease.MEMBERS.fetch(pool), await placement.read(pool)
    owners = await lease.OWNERS.fetch(pool, settings.shards)
    rates = {one.shard: one.rate for one in await load.SHARD_RATES.fetch(pool, load.MAX_AGE_S)}
    return KnownShards(
        settings.shards, members, live, {row.shard: str(row.owner) for row in owners if row.alive}, rates
    )


def _members(found: KnownShards, rows: Sequence[ShardRow]) -> list[PlacedMember]:
    weights = placement.weights_of(found.members, found.live)
    counts, waiting = Counter(found.owners.values()), Counter[str]()
    rates: dict[str, float] = {}
    for row in rows:
        if row.owner is not None:
            waiting[row.owner] += row.rows
            rates[row.owner] = rates.get(row.owner, 0.0) + (row.rate or 0.0)
    sharing = {name: one for name, one in weights.items() if one > 0}
    carried = burdens(sharing, found.owners, costs(found.shards, found.rates))
    rules = {one.name: one for one in found.live.policies}
    members = []
    for one in sorted(found.members, key=lambda one: one.name):
        applied = [place for place in (rules.get(one.name), rules.get(node_of(one.name))) if place is not None]
        members.append(
            PlacedMember(
                member=label_of(one.name),
                shards=counts[str(one.id)],
                waiting=waiting[one.name],
                rate=round(rates.get(one.name, 0.0), 1),
                burden=round(carried.get(str(one.id), 0.0), 2),
                weight=round(weights[str(one.id)], 2),
                draining=any(place.draining for place in applied),
                why="; ".join(place.why for place in applied if place.why),
            )
        )
    return members


def _state(one: ShardRow, weights: Mapping[str, float], now: datetime) -> ShardState:
    lag_s = 0.0 if one.oldest_due is None else max(0.0, (now - one.oldest_due).total_seconds())
    return ShardState(
        shard=one.shard,
        owner=None if one.owner is None else label_of(one.owner),
        waiting=one.rows,
        oldest_due=None if one.oldest_due is None else clock.iso(one.oldest_due),
        lag_s=round(lag_s, 1),
        rate=round(one.rate or 0.0, 1),
        weight=round(weights.get(one.owner or "", 0.0), 2),
        epoch=one.epoch,
        pinned=None if one.pinned is None else label_of(one.pinned),
    )


def _splits(chosen: Sequence[Split], under_way: Sequence[ReshardingRow], now: datetime) -> list[SplitState]:
    """Return the split domains, then the merged ones whose rows still move."""
    moving = {one.domain: one for one in under_way}
    split = {one.domain for one in chosen}
    merged = [Split(one.domain, 1, "", "", now) for one in under_way if one.domain not in split]
    return [_split(one, moving.get(one.domain)) for one in (*chosen, *merged)]


def _split(one: Split, moving: ReshardingRow | None) -> SplitState:
    return SplitState(
        domain=one.domain,
        parts=one.parts,
        whose=one.whose,
        why=one.why,
        since=clock.iso(one.changed_at),
        moved_rows=None if moving is None else moving.moved,
        shards_to_look_at=0 if moving is None else moving.shards,
    )
