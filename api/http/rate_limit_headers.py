"""Tell clients the state of their rate limit, and how long the service worked.

`RateLimit-Policy` and `RateLimit` follow draft-ietf-httpapi-ratelimit-headers-10: items with parameters (RFC 9651). The
three `RateLimit-*` fields of earlier versions of that draft stay beside them. `Server-Timing`: W3C Server Timing.
"""

from functools import lru_cache
from typing import Final

from engine.store.rate_limits import BURST_S, RateStatus

# What shares a limit, by the first part of its bucket's name.
_POLICIES: Final = {"key": "key", "usr": "user", "ip": "address"}


def fields(bucket: str, status: RateStatus) -> list[tuple[str, str]]:
    """Return the header fields of a bucket such as `key:…` after a request."""
    remaining, reset = str(status.remaining), str(status.reset_s)
    name, policy, burst = _policy(bucket[: bucket.index(":")], status.burst)
    return [
        ("RateLimit-Policy", policy),
        ("RateLimit", f"{name};r={remaining};t={reset}"),
        ("RateLimit-Limit", burst),
        ("RateLimit-Remaining", remaining),
        ("RateLimit-Reset", reset),
    ]


def server_timing(seconds: float) -> str:
    """Return the value of `Server-Timing`: milliseconds from the head of the request to the head of the answer."""
    return f"total;dur={seconds * 1000:.1f}"


@lru_cache(maxsize=256)
def _policy(kind: str, burst: int) -> tuple[str, str, str]:
    """Return the name of the policy, its field, and its quota: the requests of a full bucket, which lasts BURST_S."""
    name = f'"{_POLICIES.get(kind, kind)}"'
    return name, f"{name};q={burst};w={BURST_S:.0f}", str(burst)
