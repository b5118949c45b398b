"""The rules for placing shards on members: pins, weights, draining, and loads to balance by.

The rules are rows in PostgreSQL, written by `ops shards` and the rebalancer. Members read them with every heartbeat
and, through the cache stamp `shards`, within half a second of a change.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import asyncpg
import msgspec
import orjson
from msgspec import Struct

from engine.base.process_names import node_of
from engine.delivery.splits import SplitAuthor
from engine.store.caches import Cache, bump
from engine.store.queries import Conn, Queries, Source
from shards.lease import MemberRow

KIND = "shards"  # of the cache stamp

_SQL = Queries.beside(__file__, "placement.sql")


class Pin(Struct, frozen=True):
    """An operator's order that a shard belongs on one member or node."""

    shard: int
    target: str
    why: str
    changed_at: datetime


class MemberPolicy(Struct, frozen=True):
    """An operator's weight and drain order for a member or a node."""

    name: str
    weight: float
    draining: bool
    why: str
    changed_at: datetime


class _LoadPlanRow(Struct, frozen=True):
    loads: str
    whose: str
    why: str
    changed_at: datetime


class ShardLoadPlan(Struct, frozen=True):
    """The loads that shards are balanced by, in messages per second by shard."""

    loads: dict[int, float]
    whose: str
    why: str
    changed_at: datetime


class PlacementRules(Struct, frozen=True):
    """All rules as read at one moment."""

    pins: tuple[Pin, ...] = ()
    policies: tuple[MemberPolicy, ...] = ()
    plan: ShardLoadPlan | None = None

    @property
    def loads(self) -> Mapping[int, float]:
        """Return messages per second by shard; empty if members are balanced by their number of shards."""
        return {} if self.plan is None else self.plan.loads


PINS = _SQL.rows("read_pins", Pin)
POLICIES = _SQL.rows("read_policies", MemberPolicy)
_LOAD_PLAN = _SQL.rows("read_load_plan", _LoadPlanRow)
_PIN = _SQL.command("pin")
_UNPIN = _SQL.command("unpin")
_WRITE_POLICY = _SQL.command("write_policy")
_DELETE_POLICY = _SQL.command("delete_policy")
_WRITE_LOAD_PLAN = _SQL.command("write_load_plan")
_DELETE_LOAD_PLAN = _SQL.command("delete_load_plan")


class PlacementWatch:
    """Tell one process that the rules have changed. `cache` belongs to the process's Stamps, which clear it."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[str, PlacementRules] = Cache(KIND, self._load)

    @property
    def changed(self) -> bool:
        """Return True from a change of the rules until they are read again."""
        return self.cache.peek(KIND) is None

    async def read(self) -> PlacementRules:
        """Read the rules from the database, past the cache. Raises DatabaseUnavailable."""
        self.cache.clear()
        return await self.cache.get(KIND)

    async def _load(self, _: str) -> PlacementRules:
        return await read(self._pool)


async def read(source: Source) -> PlacementRules:
    """Read the rules from the database."""
    pins, policies = await PINS.fetch(source), await POLICIES.fetch(source)
    row = await _LOAD_PLAN.first(source)
    if row is None:
        return PlacementRules(tuple(pins), tuple(policies))
    loads = msgspec.json.decode(row.loads, type=dict[int, float], strict=False)
    return PlacementRules(tuple(pins), tuple(policies), ShardLoadPlan(loads, row.whose, row.why, row.changed_at))


def weights_of(members: Iterable[MemberRow], rules: PlacementRules) -> dict[str, float]:
    """Return the weight of each member by its id.

    A member's own policy goes before its node's. A draining member weighs 0, unless all members drain: then mail
    still has to go out.
    """
    all_members = list(members)
    policies = {one.name: one for one in rules.policies}
    weights, draining = {}, set()
    for one in all_members:
        own, of_node = policies.get(one.name), policies.get(node_of(one.name))
        policy = own or of_node
        weights[str(one.id)] = one.weight * (1.0 if policy is None else policy.weight)
        if any(each is not None and each.draining for each in (own, of_node)):
            draining.add(str(one.id))
    if len(draining) < len(all_members):
        weights |= dict.fromkeys(draining, 0.0)
    return weights


def pins_of(members: Iterable[MemberRow], rules: PlacementRules) -> dict[int, list[str]]:
    """Return, by pinned shard, the ids of the members that may own it; empty if its target is absent."""
    by_target: dict[str, list[str]] = {}
    for one in members:
        for target in {one.name, node_of(one.name)}:
            by_target.setdefault(target, []).append(str(one.id))
    return {pin.shard: by_target.get(pin.target, []) for pin in rules.pins}


# -- changes, each within the caller's transaction ---------------------------------------------


async def pin(connection: Conn, shards: Sequence[int], target: str, why: str) -> None:
    """Pin these shards to `target`, the name of a member or a node."""
    await _PIN.execute(connection, list(shards), target, why)
    await bump(connection, KIND)


async def unpin(connection: Conn, shards: Collection[int]) -> None:
    """Remove the pins of these shards."""
    await _UNPIN.execute(connection, list(shards))
    await bump(connection, KIND)


async def set_member_policy(connection: Conn, name: str, *, weight: float, draining: bool, why: str) -> None:
    """Set the weight and draining of a member or node; weight 1 without draining is the default."""
    if weight == 1 and not draining:
        await _DELETE_POLICY.execute(connection, name)
    else:
        await _WRITE_POLICY.execute(connection, name, weight, draining, why)
    await bump(connection, KIND)


async def write_load_plan(connection: Conn, loads: Mapping[int, float], *, whose: SplitAuthor, why: str) -> None:
    """Balance shards by these loads (messages per second by shard) from now on."""
    text = orjson.dumps({str(shard): round(load, 3) for shard, load in sorted(loads.items()) if load > 0})
    await _WRITE_LOAD_PLAN.execute(connection, text.decode(), whose.value, why)
    await bump(connection, KIND)


async def delete_load_plan(connection: Conn) -> None:
    """Balance by the number of shards from now on."""
    await _DELETE_LOAD_PLAN.execute(connection)
    await bump(connection, KIND)
