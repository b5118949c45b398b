"""What members heed beside the leases: pins, weights, draining, and the loads that the map reckons with.

All of it is rows in Postgres. Members read them with every heartbeat and, by the stamp `shards`, within half a second
of a change.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import asyncpg
import msgspec
import orjson
from msgspec import Struct

from engine.delivery.splits import SplitAuthor
from engine.store.caches import Cache, bump
from engine.store.queries import Conn, Queries, Source
from shards.lease import MemberRow

KIND = "shards"  # of the stamp

_SQL = Queries.beside(__file__, "live_map.sql")


class Pin(Struct, frozen=True):
    """The operator's word where a shard is to be."""

    shard: int
    target: str
    why: str
    changed_at: datetime


class Place(Struct, frozen=True):
    """The operator's word about a member or a node."""

    name: str
    weight: float
    draining: bool
    why: str
    changed_at: datetime


class _PlanRow(Struct, frozen=True):
    loads: str
    whose: str
    why: str
    changed_at: datetime


class Plan(Struct, frozen=True):
    """The loads that the map reckons with, in messages a second by shard."""

    loads: dict[int, float]
    whose: str
    why: str
    changed_at: datetime


class LiveMap(Struct, frozen=True):
    """All of it at one moment."""

    pins: tuple[Pin, ...] = ()
    places: tuple[Place, ...] = ()
    plan: Plan | None = None

    @property
    def loads(self) -> Mapping[int, float]:
        """By shard; empty: shards are counted."""
        return {} if self.plan is None else self.plan.loads


PINS = _SQL.rows("read_pins", Pin)
PLACES = _SQL.rows("read_places", Place)
_PLAN = _SQL.rows("read_plan", _PlanRow)
_PIN = _SQL.command("pin")
_UNPIN = _SQL.command("unpin")
_WRITE_PLACE = _SQL.command("write_place")
_FORGET_PLACE = _SQL.command("forget_place")
_WRITE_PLAN = _SQL.command("write_plan")
_FORGET_PLAN = _SQL.command("forget_plan")


class Watch:
    """Tells one process that the map has changed; `cache` is for its Stamps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[str, LiveMap] = Cache(KIND, self._load)

    @property
    def changed(self) -> bool:
        """True since somebody changed the map, until it is read again."""
        return self.cache.peek(KIND) is None

    async def read(self) -> LiveMap:
        """The map of this moment, whatever has been heard. Raises DatabaseUnavailable."""
        self.cache.clear()
        return await self.cache.get(KIND)

    async def _load(self, _: str) -> LiveMap:
        return await read(self._pool)


async def read(source: Source) -> LiveMap:
    """The map of this moment."""
    pins, places = await PINS.fetch(source), await PLACES.fetch(source)
    row = await _PLAN.first(source)
    if row is None:
        return LiveMap(tuple(pins), tuple(places))
    loads = msgspec.json.decode(row.loads, type=dict[int, float], strict=False)
    return LiveMap(tuple(pins), tuple(places), Plan(loads, row.whose, row.why, row.changed_at))


def node_of(name: str) -> str:
    """The host that a member of this name runs on."""
    return name.partition(":")[0]


def label_of(name: str) -> str:
    """A member's name without the folder in its middle: `host:mta-1`."""
    parts = name.split(":")
    return name if len(parts) < 3 else f"{parts[0]}:{parts[-1]}"


def weights_of(members: Iterable[MemberRow], live: LiveMap) -> dict[str, float]:
    """Weight by member id. A member's own word goes before its node's. Who drains weighs nothing, unless nobody else
    is there: mail goes out before anything else."""
    known = list(members)
    said = {one.name: one for one in live.places}
    weights, draining = {}, set()
    for one in known:
        own, nodes = said.get(one.name), said.get(node_of(one.name))
        word = own or nodes
        weights[str(one.id)] = one.weight * (1.0 if word is None else word.weight)
        if any(place is not None and place.draining for place in (own, nodes)):
            draining.add(str(one.id))
    if len(draining) < len(known):
        weights |= dict.fromkeys(draining, 0.0)
    return weights


def pins_of(members: Iterable[MemberRow], live: LiveMap) -> dict[int, list[str]]:
    """Who may have a pinned shard, by id; empty for one whose target is not there."""
    by_target: dict[str, list[str]] = {}
    for one in members:
        for target in {one.name, node_of(one.name)}:
            by_target.setdefault(target, []).append(str(one.id))
    return {pin.shard: by_target.get(pin.target, []) for pin in live.pins}


# -- changes, each within the caller's transaction ---------------------------------------------


async def pin(connection: Conn, shards: Sequence[int], target: str, why: str) -> None:
    """These shards are to be at `target`, a member's name or a node's."""
    await _PIN.execute(connection, list(shards), target, why)
    await bump(connection, KIND)


async def unpin(connection: Conn, shards: Collection[int]) -> None:
    """These shards may be anywhere."""
    await _UNPIN.execute(connection, list(shards))
    await bump(connection, KIND)


async def place(connection: Conn, name: str, *, weight: float, draining: bool, why: str) -> None:
    """What a member or node is to carry from now on."""
    if weight == 1 and not draining:
        await _FORGET_PLACE.execute(connection, name)
    else:
        await _WRITE_PLACE.execute(connection, name, weight, draining, why)
    await bump(connection, KIND)


async def write_plan(connection: Conn, loads: Mapping[int, float], *, whose: SplitAuthor, why: str) -> None:
    """From now on the map reckons with these loads."""
    text = orjson.dumps({str(shard): round(load, 3) for shard, load in sorted(loads.items()) if load > 0})
    await _WRITE_PLAN.execute(connection, text.decode(), whose.value, why)
    await bump(connection, KIND)


async def forget_plan(connection: Conn) -> None:
    """From now on shards are counted."""
    await _FORGET_PLAN.execute(connection)
    await bump(connection, KIND)
