"""Which shard a recipient's domain belongs to, and the names of a shard's streams. Pure.

The mapping is part of the stored data (queue rows carry their shard), so it must never change between
versions, machines or processes: a keyed-less BLAKE2b of the lower-case domain, modulo the shard count.
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
    """The shard of `domain` (A-label or lower-case U-label form, as stored), in 0..shards-1.

    A domain in `split` is spread over that many sub-shards (at most `shards`) by message id: sub-shard 0
    is the domain's own shard, and all sub-shards are different.
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
    """The shards that a domain split into so many parts lies in, its own first."""
    home, parts = _home(domain, shards), max(1, min(parts, shards))
    return [_part(home, part, parts, shards) for part in range(parts)]


def _part(home: int, part: int, parts: int, shards: int) -> int:
    # An even stride over the ring keeps sub-shards distinct, and apart even where owners hold ranges.
    return (home + part * shards // parts) % shards


@lru_cache(maxsize=65_536)
def _home(domain: str, shards: int) -> int:
    digest = blake2b(domain.lower().encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


def hint_stream(shard: int) -> str:
    """The Redis stream that carries a shard's hints; `{s17}` is its hash tag (Redis Cluster)."""
    return f"wb:{{s{shard}}}:hints"
