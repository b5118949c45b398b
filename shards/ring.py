"""Who owns which shard: weighted rendezvous hashing with bounded load, by count or by measured load. Pure.

Every process that computes the map from the same members and the same present map gets the same answer,
so the map needs agreement on its inputs only.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import blake2b
from math import floor, log

SLACK = 0.2  # a member may carry so much more or less than its share before loads move shards
EVEN = 0.25  # of all cost is shared evenly among the shards: a quiet one may be busy tomorrow
_EVEN = 1e-9  # what floating point leaves of a whole share


def assign(
    shards: int,
    members: Mapping[str, float],
    current: Mapping[int, str],
    *,
    pins: Mapping[int, Collection[str]] | None = None,
    loads: Mapping[int, float] | None = None,
) -> dict[int, str]:
    """The owner of every shard 0..shards-1; empty when no member has a weight above 0.

    Without `loads` each member gets its fair share by weight, rounded down or up, so never more than one off. A shard
    moves only when its owner is gone or holds more than its share; of what an owner must give up, the shards that
    rank it lowest go first. With `loads` (messages a second by shard) members share the load instead, and nothing
    moves while all are within `SLACK` of their share. A shard in `pins` belongs to one of the members named there, as
    long as one of them has a weight above 0. Deterministic and independent of the order of the mappings.
    """
    weights = {name: members[name] for name in sorted(members) if members[name] > 0}
    if shards <= 0 or not weights:
        return {}
    allowed = _living(pins or {}, weights, shards)
    if loads and sum(loads.values()) > 0:
        return _by_load(shards, weights, current, allowed, costs(shards, loads))
    return _by_count(shards, weights, current, allowed)


def moves(before: Mapping[int, str], after: Mapping[int, str]) -> dict[int, tuple[str | None, str]]:
    """(old owner or None, new owner) of every shard whose owner changes."""
    return {shard: (before.get(shard), owner) for shard, owner in after.items() if before.get(shard) != owner}


def costs(shards: int, loads: Mapping[int, float]) -> list[float]:
    """What each shard costs its owner, as a part of all: some for being there, the rest for its load."""
    known = [max(0.0, loads.get(shard, 0.0)) for shard in range(shards)]
    total = sum(known)
    if total <= 0:
        return [1 / shards] * shards
    return [EVEN / shards + (1 - EVEN) * one / total for one in known]


def burdens(weights: Mapping[str, float], owners: Mapping[int, str], cost: list[float]) -> dict[str, float]:
    """What each member of weight above 0 carries, as a multiple of its share: 1.0 is fair."""
    total = sum(weights[name] for name in sorted(weights))
    carried = dict.fromkeys(sorted(weights), 0.0)
    for shard, owner in sorted(owners.items()):
        if owner in carried and shard < len(cost):
            carried[owner] += cost[shard]
    return {name: carried[name] * total / weights[name] for name in carried}


def _living(
    pins: Mapping[int, Collection[str]], weights: Mapping[str, float], shards: int
) -> dict[int, tuple[str, ...]]:
    """Pins that somebody can honour."""
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
    """Owners of the pinned shards: who has one and may have it keeps it, others go where fewest are."""
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
    """Whole shards per member; one whose pins exceed its share has those, and the others share the rest."""
    fixed: dict[str, int] = {}
    while True:
        rest = {name: weights[name] for name in weights if name not in fixed}
        quota = _quota(shards - sum(fixed.values()), rest, held)
        over = {name: forced[name] for name in rest if forced[name] > quota[name]}
        if not over:
            return quota | fixed
        fixed |= over


def _quota(shards: int, weights: Mapping[str, float], held: Mapping[str, int]) -> dict[str, int]:
    """Whole shards per member, summing to `shards`.

    The rounding remainder goes to those who already hold more than the floor of their share, so that it
    costs no move, then by largest fraction, then by name.
    """
    total = sum(weights[name] for name in sorted(weights))
    share = {name: shards * weights[name] / total for name in sorted(weights)}
    quota = {name: floor(share[name] + _EVEN) for name in share}
    spare = shards - sum(quota.values())
    rounded = [name for name in share if share[name] - quota[name] > _EVEN]  # a whole share is nobody's to round up
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
    """Everybody keeps what they may; what is free goes to whoever carries least for it, the costliest first; and if
    somebody is beyond the slack then, single shards move from the busiest to the idlest until nobody is."""
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
    """One shard after the other from a busy member to an idle one, the idlest that may have any, each time the one that
    leaves both best off. Half the slack is aimed at, so that the next little change moves nothing; ends where no move
    helps."""
    mine: dict[str, list[int]] = {name: [] for name in burden}
    for shard, owner in owners.items():
        mine[owner].append(shard)
    for _ in range(len(cost) * len(burden)):  # a shard may move on, and make room where it was
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
    """(giver, taker, shard); the idlest and the busiest come first."""
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
    """The shard whose move leaves the busier of both with the least; None where every move would make it worse."""
    after = {
        shard: max(burden[giver] - cost[shard] / share[giver], burden[taker] + cost[shard] / share[taker])
        for shard in shards
        if taker in allowed.get(shard, (taker,))
    }
    shard = min(after, key=lambda shard: (after[shard], shard), default=None)
    return None if shard is None or after[shard] >= burden[giver] - _EVEN else shard


@lru_cache(maxsize=65_536)
def _score(shard: int, name: str, weight: float) -> float:
    """Weighted rendezvous score (Thaler and Ravishankar 1998; weights as -w / ln u): highest owns."""
    digest = blake2b(f"{shard}:{name}".encode(), digest_size=8).digest()
    unit = (int.from_bytes(digest, "big") + 1) / (2**64 + 2)  # in (0, 1), never an end
    return -weight / log(unit)
