"""Limit request rates with GCRA per API key, or per network without a key, shared by all processes through Redis.

Concurrent requests of one process share one script call that grants up to n of them. A busy bucket that is more than
half full also grants requests in advance, as many as are expected within `AHEAD_S`: they have left the bucket, so no
other process grants them again, and they lapse if they are not used. While Redis is unavailable, each process counts
alone: it fails open to a local limit, so that sending continues.
"""

import asyncio
import math
import time
from typing import Any

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal
from engine.store.redis import RedisClient, RedisScript, RedisUnavailable

BURST_S = 2.0  # a full bucket allows the requests of this many seconds at once
# A process gets the requests that it needs for this long: at the full rate a hundredth of a bucket. As many may exceed
# the burst, once the bucket has filled up again.
AHEAD_S = 0.02
# It may use them for longer, so that a pause of the process or its client costs nothing. Unused ones are not returned:
# a bucket that has filled up meanwhile would overflow.
LEASE_S = 0.25
_MAX_LOCAL = 20_000
_MIN_SPAN_S = 0.005  # minimum time over which a rate is estimated

# GCRA: one timestamp per key, "theoretical arrival time" in microseconds. KEYS[1]; ARGV: microseconds between
# requests, burst tolerance in microseconds, requests wanted, 0 to read only, requests wanted in advance, and the fewest
# to grant: if there is no room for them, none is granted. Advance grants leave half of the bucket, so that a nearly
# empty bucket counts each request. Returns granted, remaining, microseconds until the next one, granted in advance.
_SCRIPT = RedisScript("""
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local step, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local room = math.floor((now + burst - tat) / step)
if room < 0 then room = 0 end
local granted = math.min(wanted, room)
if granted < tonumber(ARGV[5]) then granted = 0 end
local ahead = math.max(0, math.min(tonumber(ARGV[4]), room - granted - math.ceil(burst / step / 2)))
if granted + ahead > 0 then
  tat = tat + (granted + ahead) * step
  redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000) + 1000)
end
return {granted, room - granted - ahead, math.max(0, math.ceil(tat + step - burst - now)), ahead}
""")


class RateStatus(Struct, frozen=True):
    """The state of a bucket after a request, for the rate limit headers."""

    allowed: bool
    limit: int  # requests a second, in the long run
    remaining: int
    retry_after_s: float

    @property
    def burst(self) -> int:
        """Return how many requests a full bucket allows at once."""
        return max(1, math.floor(self.limit * BURST_S))

    @property
    def reset_s(self) -> int:
        """Return the seconds until the bucket is full again, or until the next request if it is empty."""
        wait = (self.burst - self.remaining) / self.limit if self.allowed else self.retry_after_s
        return max(1, math.ceil(wait))


class _Ask(Struct):
    rate: float
    burst_s: float
    waiting: list[asyncio.Future[RateStatus]]
    ahead: int = 0  # wanted in advance


class _Lease(Struct):
    """Requests that a bucket granted in advance, or if none, the time of its last use, from which its rate is
    estimated.
    """

    rate: float
    burst_s: float
    left: int
    rest: int  # left in the bucket after the grant
    at: float  # monotonic time before the grant
    used: int = 0

    def is_valid(self, rate: float, burst_s: float, now: float) -> bool:
        """Return True if it can grant a request at this rate, which changes with the plan."""
        return self.left > 0 and now < self.at + LEASE_S and rate == self.rate and burst_s == self.burst_s

    def grant(self, now: float) -> RateStatus:
        """Grant one request; the remaining count assumes that no other process used the bucket."""
        self.left -= 1
        self.used += 1
        capacity = max(1, math.floor(self.rate * self.burst_s)) - 1
        refilled = math.floor((now - self.at) * self.rate)
        return RateStatus(True, round(self.rate), min(capacity, self.rest + self.left + refilled), 0.0)  # noqa: FBT003

    def expected(self, waiting: int, now: float) -> int:
        """Return how many requests to expect within `AHEAD_S` at the rate since this lease was granted."""
        pace = (self.used + waiting) / max(_MIN_SPAN_S, now - self.at)
        return math.floor(min(pace, self.rate) * AHEAD_S)


class RateLimiter:
    """The rate limit buckets that one process uses, with requests granted in advance; lives as long as the process."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._asks: dict[str, _Ask] = {}
        self._leases: dict[str, _Lease] = {}
        self._task: asyncio.Task[None] | None = None
        self._local: dict[str, float] = {}

    async def check(self, bucket: str, rate: float, *, burst_s: float = BURST_S) -> RateStatus:
        """Count one request in `bucket` at `rate` per second; a full bucket holds `burst_s` seconds of requests."""
        lease = self._leases.get(bucket)
        if lease is not None and lease.is_valid(rate, burst_s, now := time.monotonic()):
            return lease.grant(now)
        future: asyncio.Future[RateStatus] = asyncio.get_running_loop().create_future()
        self._asks.setdefault(bucket, _Ask(rate, burst_s, [])).waiting.append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def take(self, bucket: str, amount: int, rate: float, *, burst_s: float) -> bool:
        """Take `amount` units from a bucket that gets `rate` per second; False, and none taken, if it has less."""
        ask = _Ask(rate, burst_s, [])
        try:
            (answer,) = await self._client.ask([_SCRIPT.command(_key(bucket), *_arguments(ask, amount, least=amount))])
        except RedisUnavailable:
            answer = None
        if isinstance(answer, list):
            return bool(answer[0] == amount)
        return self._take_locally(bucket, ask, amount, least=amount)[0] == amount

    async def _run(self) -> None:
        while self._asks:
            asks, self._asks = self._asks, {}
            at = time.monotonic()
            for bucket, ask in asks.items():
                if (lease := self._leases.pop(bucket, None)) is not None:
                    ask.ahead = lease.expected(len(ask.waiting), at)
            answers: list[Any]
            try:
                answers = await self._client.ask(
                    [_SCRIPT.command(_key(bucket), *_arguments(ask, len(ask.waiting))) for bucket, ask in asks.items()]
                )
            except RedisUnavailable:
                answers = [None] * len(asks)
            for (bucket, ask), answer in zip(asks.items(), answers, strict=True):
                if isinstance(answer, list):
                    granted, remaining, wait_us, ahead = answer
                    self._keep(bucket, _Lease(ask.rate, ask.burst_s, ahead, remaining, at))
                    statuses = _statuses(ask.rate, len(ask.waiting), granted, remaining + ahead, wait_us / 1e6)
                else:  # the Redis server is unavailable, or out of memory
                    granted, remaining, wait_s = self._take_locally(bucket, ask, len(ask.waiting))
                    statuses = _statuses(ask.rate, len(ask.waiting), granted, remaining, wait_s)
                _resolve(ask, statuses)

    def _keep(self, bucket: str, lease: _Lease) -> None:
        """Remember a lease. Slow buckets grant nothing in advance."""
        if lease.rate * AHEAD_S >= 1:
            if len(self._leases) >= _MAX_LOCAL:
                self._leases.clear()
            self._leases[bucket] = lease

    def _take_locally(self, bucket: str, ask: _Ask, wanted: int, *, least: int = 0) -> tuple[int, int, float]:
        """Return the units granted, those that remain, and the seconds until the next one, as the script does."""
        now = time.monotonic()
        if len(self._local) > _MAX_LOCAL:
            self._local.clear()
        tat = max(self._local.get(bucket, now), now)
        room = max(0, math.floor((now + ask.burst_s - tat) * ask.rate))
        granted = min(wanted, room) if room >= least else 0
        self._local[bucket] = tat = tat + granted / ask.rate
        return granted, room - granted, max(0.0, tat + 1 / ask.rate - ask.burst_s - now)


def refusal(status: RateStatus) -> Refusal:
    """Return the 429 for an empty bucket."""
    wait = max(1, math.ceil(status.retry_after_s))
    return Refusal(
        ErrorType.RATE_LIMITED,
        f"You sent more than {status.limit} requests per second. Wait {wait} s, then send at a steady rate.",
        retry_after_s=wait,
    )


def _statuses(rate: float, wanted: int, granted: int, remaining: int, wait_s: float) -> list[RateStatus]:
    limit = round(rate)
    return [
        RateStatus(index < granted, limit, remaining + max(0, granted - index - 1), wait_s) for index in range(wanted)
    ]


def _resolve(ask: _Ask, statuses: list[RateStatus]) -> None:
    for future, status in zip(ask.waiting, statuses, strict=True):
        if not future.done():
            future.set_result(status)


def _key(bucket: str) -> str:
    return f"wb:rate:{bucket}"


def _arguments(ask: _Ask, wanted: int, *, least: int = 0) -> list[int]:
    return [round(1e6 / ask.rate), round(ask.burst_s * 1e6), wanted, ask.ahead, least]
