"""Sort times into the buckets of a histogram that can be merged, and read percentiles off it. Pure.

Buckets are exact up to EXACT_MS; above, each is BASE times as wide as the one before. The value that stands for a
bucket differs from each of its times by at most (BASE - 1) / (BASE + 1), 0.9%, and rounding adds at most 0.1%.
"""

import math
from collections.abc import Mapping

EXACT_MS = 512
BASE = 1.018
MAX_MS = 30 * 86_400_000  # longer times count as this one; retries end after 72 hours
_LOG = math.log(BASE)


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
