"""Request rate: GCRA per key id, or per IP where there is no key, shared by all processes through Redis.

Concurrent requests of one process are asked for together: one script call grants up to n of them. While Redis
is away each process keeps its own count, so that a dead Redis never stops mail (fails open to a local limit).
"""

import asyncio
import math
import time
from typing import Any

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal
from engine.store.redis import Away, Client, Script

BURST_S = 2.0  # seconds' worth of requests that may come at once
_MOST_LOCAL = 20_000

# GCRA: one timestamp per key, "theoretical arrival time" in microseconds. KEYS[1]; ARGV: microseconds between
# requests, burst tolerance in microseconds, requests wanted, 0 to look only. Returns granted, remaining, microseconds
# until one more.
_SCRIPT = Script("""
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local step, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local room = math.floor((now + burst - tat) / step)
if room < 0 then room = 0 end
local granted = math.min(wanted, room)
if granted > 0 then
  tat = tat + granted * step
  redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000) + 1000)
end
return {granted, room - granted, math.max(0, math.ceil(tat + step - burst - now))}
""")


class Standing(Struct, frozen=True):
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
    waiting: list[asyncio.Future[Standing]]


class Limits:
    """The request-rate buckets as one process asks for them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asks: dict[str, _Ask] = {}
        self._task: asyncio.Task[None] | None = None
        self._local: dict[str, float] = {}

    async def check(self, bucket: str, rate: float, *, burst_s: float = BURST_S) -> Standing:
        """Count one request against `bucket` at `rate` per second; `burst_s` seconds' worth may come at once."""
        future: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        self._asks.setdefault(bucket, _Ask(rate, burst_s, [])).waiting.append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._asks:
            asks, self._asks = self._asks, {}
            answers: list[Any]
            try:
                answers = await self._client.ask(
                    [_SCRIPT.command(_key(bucket), *_arguments(ask)) for bucket, ask in asks.items()]
                )
            except Away:
                answers = [None] * len(asks)
            for (bucket, ask), answer in zip(asks.items(), answers, strict=True):
                if isinstance(answer, list):
                    granted, remaining, wait_us = answer
                    standings = _standings(ask.rate, len(ask.waiting), granted, remaining, wait_us / 1e6)
                else:  # its server is away, or out of memory
                    standings = self._check_locally(bucket, ask.rate, len(ask.waiting), ask.burst_s)
                _resolve(ask, standings)

    def _check_locally(self, bucket: str, rate: float, wanted: int, burst_s: float) -> list[Standing]:
        now = time.monotonic()
        if len(self._local) > _MOST_LOCAL:
            self._local.clear()
        tat = max(self._local.get(bucket, now), now)
        room = max(0, math.floor((now + burst_s - tat) * rate))
        granted = min(wanted, room)
        self._local[bucket] = tat = tat + granted / rate
        return _standings(rate, wanted, granted, room - granted, max(0.0, tat + 1 / rate - burst_s - now))


def refusal(standing: Standing) -> Refusal:
    """The 429 for a bucket that is empty."""
    wait = max(1, math.ceil(standing.retry_after_s))
    return Refusal(
        ErrorType.RATE_LIMITED,
        f"More than {standing.limit} requests per second. Wait {wait} s and go on at a steady pace.",
        retry_after_s=wait,
    )


def _standings(rate: float, wanted: int, granted: int, remaining: int, wait_s: float) -> list[Standing]:
    limit = round(rate)
    return [
        Standing(index < granted, limit, remaining + max(0, granted - index - 1), wait_s) for index in range(wanted)
    ]


def _resolve(ask: _Ask, standings: list[Standing]) -> None:
    for future, standing in zip(ask.waiting, standings, strict=True):
        if not future.done():
            future.set_result(standing)


def _key(bucket: str) -> str:
    return f"wb:rate:{bucket}"


def _arguments(ask: _Ask) -> list[int]:
    return [round(1e6 / ask.rate), round(ask.burst_s * 1e6), len(ask.waiting)]
