"""Assign shards to members: weighted rendezvous hashing with bounded load, by count or by measured load. Pure.

Every process that computes the assignment from the same members and present owners gets the same result, so processes
need to agree on the inputs only.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import blake2b
from math import floor, log

SLACK = 0.2  # a member may carry this part more or less than its share before shards move by load
EVEN = 0.25  # of the total cost is spread evenly over the shards: a quiet shard may become busy
_EPSILON = 1e-9  # rounding error of a share that is a whole number


def assign(
    shards: int,
    members: Mapping[str, float],
    current: Mapping[int, str],
    *,
    pins: Mapping[int, Collection[str]] | None = None,
    loads: Mapping[int, float] | None = None,
) -> dict[int, str]:
    """Return the owner of every shard 0..shards-1; empty when no member has a weight above 0.

    Without `loads` each member gets its fair share by weight, rounded down or up. A shard moves only when its owner has
    left or holds more than its share; such an owner releases the shards that rank it lowest first. With `loads`
    (messages per second by shard) members share the load instead, and no shard moves while all members are within
    `SLACK` of their share. A shard in `pins` belongs to one of the members named there, as long as one of them has a
    weight above 0. The result is deterministic and independent of the order of the mappings.
    """
    weights = {name: members[name] for name in sorted(members) if members[name] > 0}
    if shards <= 0 or not weights:
        return {}
    allowed = _living(pins or {}, weights, shards)
    if loads and sum(loads.values()) > 0:
        return _by_load(shards, weights, current, allowed, costs(shards, loads))
    return _by_count(shards, weights, current, allowed)


def moves(before: Mapping[int, str], after: Mapping[int, str]) -> dict[int, tuple[str | None, str]]:
    """Return (old owner or None, new owner) by shard, for every shard whose owner changes."""
    return {shard: (before.get(shard), owner) for shard, owner in after.items() if before.get(shard) != owner}


def costs(shards: int, loads: Mapping[int, float]) -> list[float]:
    """Return the cost of each shard as a part of the total: a fixed part for each, the rest in proportion to load."""
    known = [max(0.0, loads.get(shard, 0.0)) for shard in range(shards)]
    total = sum(known)
    if total <= 0:
        return [1 / shards] * shards
    return [EVEN / shards + (1 - EVEN) * one / total for one in known]


def burdens(weights: Mapping[str, float], owners: Mapping[int, str], cost: list[float]) -> dict[str, float]:
    """Return the cost that each member carries as a multiple of its fair share (1.0); weights must be above 0."""
    total = sum(weights[name] for name in sorted(weights))
    carried = dict.fromkeys(sorted(weights), 0.0)
    for shard, owner in sorted(owners.items()):
        if owner in carried and shard < len(cost):
            carried[owner] += cost[shard]
    return {name: carried[name] * total / weights[name] for name in carried}


def _living(
    pins: Mapping[int, Collection[str]], weights: Mapping[str, float], shards: int
) -> dict[int, tuple[str, ...]]:
    """Return the pins that at least one member in `weights` can satisfy."""
    found = {shard: tuple(sorted(name for name in pins[shard] if name in weights)) for shard in sorted(pins)}
    return {shard: names for shard, names in found.items() if names and 0 <= shard < shards}


# -- by count ----------------------------------------------------------------------------------


def _by_count(
    shards: int, weights: Mapping[str, float], current: Mapping[int, str], allowed: Mapping[int, tuple[str, ...]]
) -> dict[int, str]:
    owners = _pinned(current, allowed, weights)
    forced = dict.fromkeys(weights, 0)
    for name in owners.values():
        forced[name] += 1
    held = _held(shards, weights, current, allowed)
    quota = _quotas(shards, weights, {name: len(held[name]) + forced[name] for name in weights}, forced)
    for name, mine in held.items():
        mine.sort(key=lambda shard: (-_score(shard, name, weights[name]), shard))
        owners |= dict.fromkeys(mine[: quota[name] - forced[name]], name)
    room = {name: quota[name] - forced[name] for name in weights}
    for name in held:
        room[name] -= min(room[name], len(held[name]))
    for shard in range(shards):
        if shard in owners:
            continue
        name = min(
            (name for name, free in room.items() if free > 0),
            key=lambda name: (-_score(shard, name, weights[name]), name),
        )
        owners[shard] = name
        room[name] -= 1
    return owners


def _pinned(
    current: Mapping[int, str], allowed: Mapping[int, tuple[str, ...]], weights: Mapping[str, float]
) -> dict[int, str]:
    """Return the owners of the pinned shards: a permitted owner keeps its shard, others the least loaded member."""
    owners = {shard: current[shard] for shard, names in allowed.items() if current.get(shard) in names}
    counts = dict.fromkeys(weights, 0)
    for name in owners.values():
        counts[name] += 1
    for shard, names in allowed.items():
        if shard not in owners:
            owners[shard] = min(names, key=lambda name: (counts[name] / weights[name], name))
            counts[owners[shard]] += 1
    return owners


def _held(
    shards: int, weights: Mapping[str, float], current: Mapping[int, str], pinned: Collection[int]
) -> dict[str, list[int]]:
    held: dict[str, list[int]] = {name: [] for name in weights}
    for shard in range(shards):
        owner = current.get(shard)
        if owner in held and shard not in pinned:
            held[owner].append(shard)
    return held


def _quotas(
    shards: int, weights: Mapping[str, float], held: Mapping[str, int], forced: Mapping[str, int]
) -> dict[str, int]:
    """Return whole shards per member; one with more pins than its share gets those, the others share the rest."""
    fixed: dict[str, int] = {}
    while True:
        rest = {name: weights[name] for name in weights if name not in fixed}
        quota = _quota(shards - sum(fixed.values()), rest, held)
        over = {name: forced[name] for name in rest if forced[name] > quota[name]}
        if not over:
            return quota | fixed
        fixed |= over


def _quota(shards: int, weights: Mapping[str, float], held: Mapping[str, int]) -> dict[str, int]:
    """Return whole shards per member, summing to `shards`.

    The rounding remainder goes to members that already hold more than the floor of their share, so that it moves no
    shard, then by largest fraction, then by name.
    """
    total = sum(weights[name] for name in sorted(weights))
    share = {name: shards * weights[name] / total for name in sorted(weights)}
    quota = {name: floor(share[name] + _EPSILON) for name in share}
    spare = shards - sum(quota.values())
    rounded = [name for name in share if share[name] - quota[name] > _EPSILON]  # a whole share is not rounded
    ranked = sorted(rounded, key=lambda name: (held[name] <= quota[name], quota[name] - share[name], name))
    for name in ranked[:spare]:
        quota[name] += 1
    return quota


# -- by load -----------------------------------------------------------------------------------


def _by_load(
    shards: int,
    weights: Mapping[str, float],
    current: Mapping[int, str],
    allowed: Mapping[int, tuple[str, ...]],
    cost: list[float],
) -> dict[int, str]:
    """Assign by load: members keep their permitted shards; free shards go, costliest first, to the least loaded member.

    If a member is then outside the slack, single shards move from the busiest members to the idlest.
    """
    total = sum(weights.values())
    share = {name: weights[name] / total for name in weights}
    owners: dict[int, str] = {}
    for shard in range(shards):
        owner = current.get(shard)
        if owner is not None and owner in weights and owner in allowed.get(shard, (owner,)):
            owners[shard] = owner
    burden = burdens(weights, owners, cost)
    free = [shard for shard in range(shards) if shard not in owners]
    for shard in sorted(free, key=lambda shard: (-cost[shard], shard)):
        names = allowed.get(shard) or tuple(weights)
        name = min(names, key=lambda name: (burden[name] + cost[shard] / share[name], name))
        owners[shard] = name
        burden[name] += cost[shard] / share[name]
    if _beyond(burden, SLACK):
        _relieve(owners, burden, share, allowed, cost)
    return owners


def _beyond(burden: Mapping[str, float], slack: float) -> bool:
    return max(burden.values()) > 1 + slack or min(burden.values()) < 1 - slack


def _relieve(
    owners: dict[int, str],
    burden: dict[str, float],
    share: Mapping[str, float],
    allowed: Mapping[int, tuple[str, ...]],
    cost: list[float],
) -> None:
    """Move single shards from busy members to idle ones until all are within half the slack or no move helps.

    Half the slack is the aim, so that the next small change of load moves no shard.
    """
    mine: dict[str, list[int]] = {name: [] for name in burden}
    for shard, owner in owners.items():
        mine[owner].append(shard)
    for _ in range(len(cost) * len(burden)):  # a shard may move more than once
        if not _beyond(burden, SLACK / 2):
            return
        step = _next_move(mine, burden, share, allowed, cost)
        if step is None:
            return
        giver, taker, moved = step
        mine[giver].remove(moved)
        mine[taker].append(moved)
        owners[moved] = taker
        burden[giver] -= cost[moved] / share[giver]
        burden[taker] += cost[moved] / share[taker]


def _next_move(
    mine: Mapping[str, Collection[int]],
    burden: Mapping[str, float],
    share: Mapping[str, float],
    allowed: Mapping[int, tuple[str, ...]],
    cost: list[float],
) -> tuple[str, str, int] | None:
    """Return (giver, taker, shard) of the next move, trying the idlest taker and the busiest giver first."""
    idle = sorted(burden, key=lambda name: (burden[name], name))
    for taker in idle:
        for giver in reversed(idle):
            if burden[giver] <= burden[taker]:
                break
            moved = _step(giver, taker, mine[giver], burden, share, allowed, cost)
            if moved is not None:
                return giver, taker, moved
    return None


def _step(
    giver: str,
    taker: str,
    shards: Collection[int],
    burden: Mapping[str, float],
    share: Mapping[str, float],
    allowed: Mapping[int, tuple[str, ...]],
    cost: list[float],
) -> int | None:
    """Return the shard whose move leaves the busier of both members with the least load; None if no move helps."""
    after = {
        shard: max(burden[giver] - cost[shard] / share[giver], burden[taker] + cost[shard] / share[taker])
        for shard in shards
        if taker in allowed.get(shard, (taker,))
    }
    shard = min(after, key=lambda shard: (after[shard], shard), default=None)
    return None if shard is None or after[shard] >= burden[giver] - _EPSILON else shard


@lru_cache(maxsize=65_536)
def _score(shard: int, name: str, weight: float) -> float:
    """Return the weighted rendezvous score (Thaler and Ravishankar 1998; weights as -w / ln u): the highest owns."""
    digest = blake2b(f"{shard}:{name}".encode(), digest_size=8).digest()
    unit = (int.from_bytes(digest, "big") + 1) / (2**64 + 2)  # in (0, 1), never an end
    return -weight / log(unit)
