"""Sort times into the buckets of a histogram that can be merged, and read percentiles off it. Pure.

A stored histogram is packed: bucket (2 octets) and samples (4 octets) in network byte order, then the next bucket. One
behind another they are their sum.

Buckets are exact up to EXACT_MS; above, each is BASE times as wide as the one before. The value that stands for a
bucket differs from each of its times by at most (BASE - 1) / (BASE + 1), 0.9%, and rounding adds at most 0.1%.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from struct import Struct

EXACT_MS = 512
BASE = 1.018
MAX_MS = 30 * 86_400_000  # longer times count as this one; retries end after 72 hours
_LOG = math.log(BASE)
_ENTRY = Struct(">Hi")
_MERGED_IN_THREAD = 100_000  # octets of histograms; fewer are merged in 2 ms


def bucket_of(time_ms: int) -> int:
    """Return the bucket of a time; negative times, from clocks of two hosts, count as 0."""
    if time_ms <= EXACT_MS:
        return max(time_ms, 0)
    return EXACT_MS + 1 + int(math.log(min(time_ms, MAX_MS) / EXACT_MS) / _LOG)


def value_of(bucket: int) -> int:
    """Return the time in milliseconds that stands for a bucket: the one with the smallest largest relative error."""
    if bucket <= EXACT_MS:
        return bucket
    low = EXACT_MS * BASE ** (bucket - EXACT_MS - 1)
    return round(2 * low * BASE / (1 + BASE))


def percentile(samples: Mapping[int, int], share: float) -> int | None:
    """Return a percentile by nearest rank of samples by bucket; None without samples."""
    total = sum(samples.values())
    if total <= 0:
        return None
    rank, seen = max(1, math.ceil(share * total)), 0
    for bucket in sorted(samples):
        seen += samples[bucket]
        if seen >= rank:
            return value_of(bucket)
    return None


def added(histogram: bytes, samples: Mapping[int, int]) -> bytes:
    """Return a stored histogram with `samples` by bucket added to it. Empty octets are an empty histogram."""
    sums = dict(_ENTRY.iter_unpack(histogram))
    for bucket, count in samples.items():
        sums[bucket] = sums.get(bucket, 0) + count
    return b"".join([_ENTRY.pack(bucket, count) for bucket, count in sums.items() if count])


def merged(histograms: bytes) -> dict[int, int]:
    """Return the sum by bucket of stored histograms, one behind another, without empty buckets."""
    sums = [0] * _BUCKETS  # a list counts faster than a dictionary
    for bucket, count in _ENTRY.iter_unpack(histograms):
        sums[bucket] += count
    return {bucket: count for bucket, count in enumerate(sums) if count > 0}


_BUCKETS = bucket_of(MAX_MS) + 1


async def merged_times(times: Sequence[bytes]) -> list[dict[int, int]]:
    """Return the sum of each of the stored histograms, in a thread if they are large."""
    if sum(map(len, times)) > _MERGED_IN_THREAD:
        return await asyncio.to_thread(_merged, times)
    return _merged(times)


def _merged(times: Sequence[bytes]) -> list[dict[int, int]]:
    return [merged(one) for one in times]
