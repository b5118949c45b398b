"""Request rate: GCRA per key id, or per IP where there is no key, shared by all processes through Redis.

Concurrent requests of one process are asked for together: one script call grants up to n of them. A busy bucket that
is more than half full grants requests ahead too, as many as are likely within `AHEAD_S`: they have left the bucket, so
that nobody grants them twice, and lapse when they are not used. While Redis is away each process keeps its own count,
so that a dead Redis never stops mail (fails open to a local limit).
"""

import asyncio
import math
import time
from typing import Any

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal
from engine.store.redis import RedisClient, RedisScript, RedisUnavailable

BURST_S = 2.0  # seconds' worth of requests that may come at once
# A process is granted what its pace needs for this long: at the full rate a hundredth of a bucket. As much may come
# beyond the burst, once the bucket has filled up behind it.
AHEAD_S = 0.02
# It may use that for longer, so that a pause of its own, or of its client's, costs the client nothing. To give back
# what lapses at last would be worse: a bucket that has filled up meanwhile would overflow.
LEASE_S = 0.25
_MAX_LOCAL = 20_000
_MIN_SPAN_S = 0.005  # that a pace is judged by: a handful at once is none

# GCRA: one timestamp per key, "theoretical arrival time" in microseconds. KEYS[1]; ARGV: microseconds between
# requests, burst tolerance in microseconds, requests wanted, 0 to look only, requests wanted ahead. What is granted
# ahead leaves half of the bucket: near its edge each request is asked for. Returns granted, remaining, microseconds
# until one more, granted ahead.
_SCRIPT = RedisScript("""
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local step, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local room = math.floor((now + burst - tat) / step)
if room < 0 then room = 0 end
local granted = math.min(wanted, room)
local ahead = math.max(0, math.min(tonumber(ARGV[4]), room - granted - math.ceil(burst / step / 2)))
if granted + ahead > 0 then
  tat = tat + (granted + ahead) * step
  redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000) + 1000)
end
return {granted, room - granted - ahead, math.max(0, math.ceil(tat + step - burst - now)), ahead}
""")


class RateStatus(Struct, frozen=True):
    """Where a bucket stands after a request: for the limit headers."""

    allowed: bool
    limit: int  # requests a second, in the long run
    remaining: int
    retry_after_s: float

    @property
    def burst(self) -> int:
        """Requests that may come at once from a full bucket."""
        return max(1, math.floor(self.limit * BURST_S))

    @property
    def reset_s(self) -> int:
        """Seconds until the bucket is full again, or until one more request when it is empty."""
        wait = (self.burst - self.remaining) / self.limit if self.allowed else self.retry_after_s
        return max(1, math.ceil(wait))


class _Ask(Struct):
    rate: float
    burst_s: float
    waiting: list[asyncio.Future[RateStatus]]
    ahead: int = 0  # wanted beyond those who wait


class _Lease(Struct):
    """Requests that a bucket granted ahead; where it granted none, what its pace is judged by."""

    rate: float
    burst_s: float
    left: int
    rest: int  # in the bucket when they left it
    at: float  # monotonic, s: before the bucket was asked
    used: int = 0

    def good(self, rate: float, burst_s: float, now: float) -> bool:
        """Whether it grants a request; not one at another rate, which a change of plan brings."""
        return self.left > 0 and now < self.at + LEASE_S and rate == self.rate and burst_s == self.burst_s

    def grant(self, now: float) -> RateStatus:
        """One request, with what the bucket holds by now if nobody else asked it."""
        self.left -= 1
        self.used += 1
        most = max(1, math.floor(self.rate * self.burst_s)) - 1
        refilled = math.floor((now - self.at) * self.rate)
        return RateStatus(True, round(self.rate), min(most, self.rest + self.left + refilled), 0.0)  # noqa: FBT003

    def likely(self, waiting: int, now: float) -> int:
        """Requests to expect within `AHEAD_S`, as the bucket's pace has been since this one."""
        pace = (self.used + waiting) / max(_MIN_SPAN_S, now - self.at)
        return math.floor(min(pace, self.rate) * AHEAD_S)


class RateLimiter:
    """The request-rate buckets as one process asks for them."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._asks: dict[str, _Ask] = {}
        self._leases: dict[str, _Lease] = {}
        self._task: asyncio.Task[None] | None = None
        self._local: dict[str, float] = {}

    async def check(self, bucket: str, rate: float, *, burst_s: float = BURST_S) -> RateStatus:
        """Count one request against `bucket` at `rate` per second; `burst_s` seconds' worth may come at once."""
        lease = self._leases.get(bucket)
        if lease is not None and lease.good(rate, burst_s, now := time.monotonic()):
            return lease.grant(now)
        future: asyncio.Future[RateStatus] = asyncio.get_running_loop().create_future()
        self._asks.setdefault(bucket, _Ask(rate, burst_s, [])).waiting.append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._asks:
            asks, self._asks = self._asks, {}
            at = time.monotonic()
            for bucket, ask in asks.items():
                if (lease := self._leases.pop(bucket, None)) is not None:
                    ask.ahead = lease.likely(len(ask.waiting), at)
            answers: list[Any]
            try:
                answers = await self._client.ask(
                    [_SCRIPT.command(_key(bucket), *_arguments(ask)) for bucket, ask in asks.items()]
                )
            except RedisUnavailable:
                answers = [None] * len(asks)
            for (bucket, ask), answer in zip(asks.items(), answers, strict=True):
                if isinstance(answer, list):
                    granted, remaining, wait_us, ahead = answer
                    self._keep(bucket, _Lease(ask.rate, ask.burst_s, ahead, remaining, at))
                    standings = _standings(ask.rate, len(ask.waiting), granted, remaining + ahead, wait_us / 1e6)
                else:  # its server is away, or out of memory
                    standings = self._check_locally(bucket, ask.rate, len(ask.waiting), ask.burst_s)
                _resolve(ask, standings)

    def _keep(self, bucket: str, lease: _Lease) -> None:
        """Remember what was granted ahead, or else that the bucket was asked. Slow buckets grant nothing ahead."""
        if lease.rate * AHEAD_S >= 1:
            if len(self._leases) >= _MAX_LOCAL:
                self._leases.clear()
            self._leases[bucket] = lease

    def _check_locally(self, bucket: str, rate: float, wanted: int, burst_s: float) -> list[RateStatus]:
        now = time.monotonic()
        if len(self._local) > _MAX_LOCAL:
            self._local.clear()
        tat = max(self._local.get(bucket, now), now)
        room = max(0, math.floor((now + burst_s - tat) * rate))
        granted = min(wanted, room)
        self._local[bucket] = tat = tat + granted / rate
        return _standings(rate, wanted, granted, room - granted, max(0.0, tat + 1 / rate - burst_s - now))


def refusal(standing: RateStatus) -> Refusal:
    """The 429 for a bucket that is empty."""
    wait = max(1, math.ceil(standing.retry_after_s))
    return Refusal(
        ErrorType.RATE_LIMITED,
        f"More than {standing.limit} requests per second. Wait {wait} s and go on at a steady pace.",
        retry_after_s=wait,
    )


def _standings(rate: float, wanted: int, granted: int, remaining: int, wait_s: float) -> list[RateStatus]:
    limit = round(rate)
    return [
        RateStatus(index < granted, limit, remaining + max(0, granted - index - 1), wait_s) for index in range(wanted)
    ]


def _resolve(ask: _Ask, standings: list[RateStatus]) -> None:
    for future, standing in zip(ask.waiting, standings, strict=True):
        if not future.done():
            future.set_result(standing)


def _key(bucket: str) -> str:
    return f"wb:rate:{bucket}"


def _arguments(ask: _Ask) -> list[int]:
    return [round(1e6 / ask.rate), round(ask.burst_s * 1e6), len(ask.waiting), ask.ahead]
