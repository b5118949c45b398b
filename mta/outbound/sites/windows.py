"""Leases the connections of a site, and meters its rates, over all processes through Redis.

A process asks how many connections it may hold and is told in one script call; what it still holds counts as granted
until it lets go, so that all processes together never pass the limit. Where more is wanted than there is, every process
gets an equal part, and the remainder goes round. Leases run out with the process that held them. While Redis is away a
process keeps to the part of the limit that equals its part of the shards. Every key carries its site's hash tag, and a
call names one key (Redis Cluster).
"""

import asyncio
import time

import structlog

from engine.base import clock
from engine.store.redis import RedisClient, RedisScript, RedisUnavailable
from mta.outbound.sites.pacer import Pacer
from shards.ownership import ShardOwnership

LEASE_S = 15.0  # after which the leases of a dead process end; restarted under its name it has them at once
RENEW_S = 4.0  # a call costs 25 µs in all, and ten thousand sites may be busy
ROTATE_S = 10.0  # how long an indivisible remainder stays with one process
GATHER_S = 0.001  # requests of a moment share one round trip
BATCH = 500
MIN_PAUSE_S = 1.0  # shorter pauses are not shared
NAP_S = 0.05  # at least, before asking for tokens again
_MAX_LOCAL = 10_000

# Leases of one site: a hash of process -> "granted wanted until". KEYS[1]; ARGV: process, limit, wanted, held, lease in
# milliseconds, rotation in milliseconds, pause to tell in milliseconds, 1 when the servers answered a probe well, and
# the milliseconds by which service time, in which pauses end, is ahead of Redis' time.
# Returns granted, the pause that others have told, in milliseconds, and 1 while the servers are to be probed. "!" and
# "?" are no processes: the end of the pause; and that from the pause on, until a probe went well, all processes
# together may hold one connection.
_LEASE = RedisScript("""
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local me, limit, wanted, held = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local lease, rotation, pause = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local service = now + tonumber(ARGV[9])
local all = redis.call('HGETALL', KEYS[1])
local wants, names, paused, taken, probing = {}, {}, 0, 0, 0
for i = 1, #all, 2 do
  if all[i] == '!' then
    paused = tonumber(all[i + 1])
  elseif all[i] == '?' then
    probing = 1
  elseif all[i] ~= me then
    local granted, want, till = string.match(all[i + 1], '(%d+) (%d+) (%d+)')
    if tonumber(till) < now then
      redis.call('HDEL', KEYS[1], all[i])
    else
      taken = taken + tonumber(granted)
      if tonumber(want) > 0 then
        wants[all[i]] = tonumber(want)
        names[#names + 1] = all[i]
      end
    end
  end
end
if pause > 0 then
  redis.call('HSET', KEYS[1], '!', string.format('%d', service + pause), '?', '1')
  probing = 1
elseif probing == 1 and ARGV[8] == '1' then
  redis.call('HDEL', KEYS[1], '?')
  probing = 0
end
local granted = 0
if probing == 1 then
  granted = math.max(0, math.min(wanted, limit - taken, 1 - taken))
elseif wanted > 0 then
  names[#names + 1] = me
  wants[me] = wanted
  table.sort(names)
  local each, over, turn = math.floor(limit / #names), limit % #names, math.floor(now / rotation)
  local fair, mine = 0, each
  for i, name in ipairs(names) do
    local part = each + (((i + turn) % #names < over) and 1 or 0)
    if name == me then mine = part else fair = fair + math.min(part, wants[name]) end
  end
  granted = math.max(0, math.min(wanted, limit - taken, math.max(mine, limit - fair)))
end
if wanted > 0 or held > 0 then
  local kept = math.max(granted, held)
  redis.call('HSET', KEYS[1], me, string.format('%d %d %d', kept, wanted, now + lease))
else
  redis.call('HDEL', KEYS[1], me)
end
redis.call('PEXPIRE', KEYS[1], math.max(lease, pause, paused - service) + (probing == 1 and 60000 or 1000))
return {granted, math.max(0, paused - service), probing}
""")

# Pace of one site: GCRA for each rate at once. KEYS[1]; ARGV: messages wanted, then for each rate its name,
# microseconds between messages, and tolerance in microseconds. Returns granted, and microseconds until one more.
_PACE = RedisScript("""
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local granted, wait, ends, tats = tonumber(ARGV[1]), 0, now, {}
for i = 2, #ARGV, 3 do
  local step, burst = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local tat = math.max(now, tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or now))
  tats[i] = tat
  granted = math.min(granted, math.max(0, math.floor((now + burst - tat) / step)))
end
for i = 2, #ARGV, 3 do
  local step, burst = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local tat = tats[i] + granted * step
  if granted > 0 then redis.call('HSET', KEYS[1], ARGV[i], string.format('%.0f', tat)) end
  wait = math.max(wait, tat + step - burst - now)
  ends = math.max(ends, tat)
end
if granted > 0 then redis.call('PEXPIRE', KEYS[1], math.ceil((ends - now) / 1000) + 1000) end
return {granted, math.max(0, math.ceil(wait))}
""")

_log = structlog.get_logger("mta")


class SiteWindows:
    """The leases of one process."""

    def __init__(self, client: RedisClient, process: str, ownership: ShardOwnership) -> None:
        self._client = client
        self._process = process
        self._ownership = ownership
        self._renew_at = clock.monotonic() + RENEW_S
        self._wanting: dict[str, Pacer] = {}
        self._leased: dict[str, Pacer] = {}
        self._pauses: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._paces: dict[str, dict[float, float]] = {}  # while Redis is away: theoretical arrival times by period
        self._away = False

    # -- connections ---------------------------------------------------------------------------

    def ask(self, pacer: Pacer) -> None:
        """Have the share of a site leased anew within milliseconds: it wants another one, or none any more."""
        self._wanting[pacer.limits.key] = pacer
        self._wake.set()

    def tell_pause(self, pacer: Pacer, seconds: float) -> None:
        """Tell other processes with the next lease that this site is paused."""
        self._pauses[pacer.limits.key] = seconds
        self.ask(pacer)

    async def due(self) -> list[list[Pacer]]:
        """Wait until a site wants another share or its lease is to be renewed; return the sites to lease for, in
        batches."""
        try:
            async with asyncio.timeout(max(0.0, self._renew_at - clock.monotonic())):
                await self._wake.wait()
            await asyncio.sleep(GATHER_S)
        except TimeoutError:
            pass
        self._wake.clear()
        if clock.monotonic() >= self._renew_at:
            self._renew_at = clock.monotonic() + RENEW_S
            self._wanting = self._leased | self._wanting
        wanting, self._wanting = list(self._wanting.values()), {}
        return [wanting[start : start + BATCH] for start in range(0, len(wanting), BATCH)]

    async def release(self) -> None:
        """Give all leases back: the process ends."""
        held = list(self._leased.values())
        for start in range(0, len(held), BATCH):
            batch = held[start : start + BATCH]
            await self.lease(batch, [0] * len(batch))

    async def lease(self, pacers: list[Pacer], wants: list[int]) -> list[Pacer]:
        """Lease connections in one round trip, `wants` for each site; return those whose share has changed."""
        changed: list[Pacer] = []
        pauses = [self._pauses.pop(pacer.limits.key, 0.0) for pacer in pacers]
        answers = await self._ask_redis(pacers, wants, pauses)
        now = clock.monotonic()
        for pacer, want, (granted, paused_ms, probing) in zip(pacers, wants, answers, strict=True):
            pacer.probe_together(half_open=probing)
            if want or pacer.open:
                self._leased[pacer.limits.key] = pacer
            else:
                self._leased.pop(pacer.limits.key, None)
            if paused_ms / 1000 > MIN_PAUSE_S and not pacer.paused(now):
                pacer.heard_of_pause(now, paused_ms / 1000)
            if pacer.lease(granted):
                changed.append(pacer)
        return changed

    async def _ask_redis(
        self, pacers: list[Pacer], wants: list[int], pauses: list[float]
    ) -> list[tuple[int, int, bool]]:
        commands = [
            _LEASE.command(
                window_key(pacer), self._process, pacer.limits.connections, want, pacer.open, round(LEASE_S * 1000),
                round(ROTATE_S * 1000), round(pause * 1000), int(pacer.recovered), round(clock.ahead_s() * 1000),
            )
            for pacer, want, pause in zip(pacers, wants, pauses, strict=True)
        ]  # fmt: skip
        told = [pacer.recovered for pacer in pacers]
        try:
            answers = await self._client.ask(commands)
        except RedisUnavailable as error:
            answers = [error] * len(commands)
        found: list[tuple[int, int, bool]] = []
        refused: Exception | None = None
        for pacer, want, recovered, answer in zip(pacers, wants, told, answers, strict=True):
            if isinstance(answer, list):
                granted, paused, probing = answer
                found.append((granted, paused, bool(probing)))
                if recovered:
                    pacer.told_recovery()
            else:
                refused = answer
                found.append((self._own_part(pacer, want), 0, False))
        if refused is not None and not self._away:
            _log.warning("Redis away: site windows divided by shards", error=str(refused))
        self._away = refused is not None
        return found

    def _own_part(self, pacer: Pacer, want: int) -> int:
        """Return the connections to use without Redis: the same part of the limit as of the shards, at least one."""
        return min(want, max(1, int(pacer.limits.connections * self._ownership.fraction)))

    # -- pace ----------------------------------------------------------------------------------

    async def token(self, pacer: Pacer, patience_s: float) -> bool:
        """Wait for the right to begin one message; return False if there will be none within `patience_s`."""
        if pacer.may_begin():
            return True
        ends = clock.monotonic() + patience_s
        while not pacer.may_begin():
            wait_s = pacer.token_at - clock.monotonic()
            if wait_s > 0:
                if clock.monotonic() + wait_s > ends:
                    return False
                await asyncio.sleep(max(wait_s, NAP_S))
                continue
            key = pacer.limits.key
            task = self._fetching.get(key)
            if task is None or task.done():
                task = self._fetching[key] = asyncio.create_task(self._fetch(pacer))
            await asyncio.shield(task)
            if task.done():
                self._fetching.pop(key, None)
        return True

    async def _fetch(self, pacer: Pacer) -> None:
        wanted = pacer.ahead
        try:
            [answer] = await self._client.ask([_PACE.command(pace_key(pacer), wanted, *_rates(pacer, 1.0))])
        except RedisUnavailable:
            answer = None
        # No list: Redis is away or out of memory.
        granted, wait_us = answer if isinstance(answer, list) else self._meter(pacer, wanted)
        pacer.add_tokens(granted, clock.monotonic() + wait_us / 1e6)

    def _meter(self, pacer: Pacer, wanted: int) -> tuple[int, int]:
        """Meter the rates in memory while Redis is away, at the part that equals this process's part of the shards."""
        now = time.monotonic() * 1e6
        if len(self._paces) > _MAX_LOCAL:
            self._paces.clear()
        known = self._paces.setdefault(pacer.limits.key, {})
        rates = _rates(pacer, max(self._ownership.fraction, 1e-3))
        each = [(float(rates[at]), float(rates[at + 1]), float(rates[at + 2])) for at in range(0, len(rates), 3)]
        granted = wanted
        for period, step, burst in each:
            tat = max(now, known.get(period, now))
            granted = min(granted, max(0, int((now + burst - tat) / step)))
        wait = 0.0
        for period, step, burst in each:
            known[period] = max(now, known.get(period, now)) + granted * step
            wait = max(wait, known[period] + step - burst - now)
        return granted, max(0, round(wait))


def window_key(pacer: Pacer) -> str:
    """Return the Redis key of a site's leases."""
    return f"wb:{{site:{pacer.limits.key}}}:window"


def pace_key(pacer: Pacer) -> str:
    """Return the Redis key of a site's rates."""
    return f"wb:{{site:{pacer.limits.key}}}:pace"


def _rates(pacer: Pacer, fraction: float) -> list[float]:
    """Return for each rate its period, microseconds between messages, and tolerance: a quarter of a second's worth, and
    always one message."""
    found: list[float] = []
    for count, seconds in pacer.limits.rates:
        step = seconds / (count * fraction) * 1e6
        found += [seconds, round(step), round(max(step, 250_000))]
    return found
