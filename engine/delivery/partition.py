"""Map recipient domains to shards, and shards to the names of their Redis streams. Pure.

Queue rows store their shard, so the mapping must never change between versions, machines or processes: an unkeyed
BLAKE2b hash of the lower-case domain, modulo the number of shards.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

_SPREAD = 0x9E3779B97F4A7C15  # odd, 2**64 / golden ratio: neighbouring ids land on distant sub-shards
_MASK = 0xFFFF_FFFF_FFFF_FFFF


def shard_of(
    domain: str,
    shards: int,
    *,
    split: Mapping[str, int] | None = None,
    message_id: UUID | None = None,
) -> int:
    """Return the shard of `domain` (A-labels or lower-case U-labels, as stored), from 0 to shards - 1.

    A domain in `split` is spread by message id over that many sub-shards, at most `shards`. Sub-shard 0 is the domain's
    own shard; all sub-shards are different.
    """
    home = _home(domain, shards)
    if not split or message_id is None:
        return home
    parts = min(split.get(domain, 1), shards)
    if parts <= 1:
        return home
    part = ((message_id.int * _SPREAD & _MASK) >> 32) % parts
    return _part(home, part, parts, shards)


def parts_of(domain: str, shards: int, parts: int) -> list[int]:
    """Return the shards of a domain that is split into `parts`, its own shard first."""
    home, parts = _home(domain, shards), max(1, min(parts, shards))
    return [_part(home, part, parts, shards) for part in range(parts)]


def _part(home: int, part: int, parts: int, shards: int) -> int:
    # An even stride keeps sub-shards distinct, and spreads them even if each owner holds a range of shards.
    return (home + part * shards // parts) % shards


@lru_cache(maxsize=65_536)
def _home(domain: str, shards: int) -> int:
    digest = blake2b(domain.lower().encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


def hint_stream(shard: int) -> str:
    """Return the name of a shard's hint stream; `{s17}` is its hash tag for Redis Cluster."""
    return f"wb:{{s{shard}}}:hints"
