"""Who owns which shard: weighted rendezvous hashing with bounded load. Pure.

Every process that computes the map from the same members and the same present map gets the same answer,
so the map needs agreement on its inputs only.
"""

from collections.abc import Mapping
from hashlib import blake2b
from math import floor, log

_EVEN = 1e-9  # what floating point leaves of a whole share


def assign(shards: int, members: Mapping[str, float], current: Mapping[int, str]) -> dict[int, str]:
    """The owner of every shard 0..shards-1; empty when no member has a weight above 0.

    Each member gets its fair share by weight, rounded down or up, so never more than one off. A shard moves
    only when its owner is gone or holds more than its share; of what an owner must give up, the shards that
    rank it lowest go first. Deterministic and independent of the order of either mapping.
    """
    weights = {name: weight for name, weight in members.items() if weight > 0}
    if shards <= 0 or not weights:
        return {}
    held = _held(shards, weights, current)
    quota = _quota(shards, weights, {name: len(mine) for name, mine in held.items()})
    owners: dict[int, str] = {}
    for name, mine in held.items():
        mine.sort(key=lambda shard: (-_score(shard, name, weights[name]), shard))
        owners |= dict.fromkeys(mine[: quota[name]], name)
    room = {name: quota[name] - min(quota[name], len(held[name])) for name in weights}
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


def moves(before: Mapping[int, str], after: Mapping[int, str]) -> dict[int, tuple[str | None, str]]:
    """(old owner or None, new owner) of every shard whose owner changes."""
    return {shard: (before.get(shard), owner) for shard, owner in after.items() if before.get(shard) != owner}


def _held(shards: int, weights: Mapping[str, float], current: Mapping[int, str]) -> dict[str, list[int]]:
    held: dict[str, list[int]] = {name: [] for name in sorted(weights)}
    for shard in range(shards):
        owner = current.get(shard)
        if owner in held:
            held[owner].append(shard)
    return held


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


def _score(shard: int, name: str, weight: float) -> float:
    """Weighted rendezvous score (Thaler and Ravishankar 1998; weights as -w / ln u): highest owns."""
    digest = blake2b(f"{shard}:{name}".encode(), digest_size=8).digest()
    unit = (int.from_bytes(digest, "big") + 1) / (2**64 + 2)  # in (0, 1), never an end
    return -weight / log(unit)
