"""Remember in Redis when each credential last wrote, so that any process reads what its caller has just written.

A process that cannot note a write sends all its own reads to the primary, and once Redis answers again, those of all
processes for a moment. The same happens after Redis has lost its data.
"""

import asyncio
import math
import time
from collections.abc import Awaitable
from typing import Final, TypeVar

from engine.base.settings import Settings
from engine.store.redis import RedisClient, RedisCommand, RedisScript, RedisUnavailable

# A note covers the writes of the next moment too, so that a busy sender costs few commands.
COVERED_S: Final = 0.25
KEPT_LAGS: Final = 4  # a replica that gets reads lags once at most, and is asked every half second
_MAX_COVERED: Final = 20_000
_EVERYBODY: Final = "wb:wrote:*"  # when any credential may have written without a note; no credential has this name

Result = TypeVar("Result")

# Both use the clock of the Redis server alone. KEYS[1]; ARGV: microseconds from now, milliseconds to keep (0: always).
_NOTE: Final = RedisScript("""
local now = redis.call('TIME')
local value = string.format('%.0f', now[1] * 1000000 + now[2] + ARGV[1])
if ARGV[2] == '0' then redis.call('SET', KEYS[1], value) else redis.call('SET', KEYS[1], value, 'PX', ARGV[2]) end
return 1
""")
# KEYS[1]; ARGV: 1 to note the present time if there is no note. Returns the age of the note in microseconds, which is
# negative for one in the future, or nil.
_AGE: Final = RedisScript("""
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local noted = redis.call('GET', KEYS[1])
if not noted and ARGV[1] == '1' then
  noted = string.format('%.0f', now)
  redis.call('SET', KEYS[1], noted)
end
if not noted then return false end
return now - tonumber(noted)
""")


class LastWrites:
    """The notes of one process; `keep_s` is longer than any replica that gets reads can lag."""

    @classmethod
    def from_settings(cls, settings: Settings, client: RedisClient) -> "LastWrites | None":
        """Return the notes of a process; None if the settings name no replicas."""
        return None if settings.database_read_url is None else cls(client, settings.read_lag_s * KEPT_LAGS)

    def __init__(self, client: RedisClient, keep_s: float) -> None:
        self._client = client
        self._keep_ms = math.ceil(keep_s * 1000)
        self._covered: dict[str, float] = {}  # monotonic time until which a credential's writes are noted
        self._lost = False

    async def note(self, credential: str) -> None:
        """Note a write that has been committed, before its caller gets the response."""
        if self._is_noted(credential):
            return
        now = time.monotonic()
        command = _NOTE.command(_key(credential), round(COVERED_S * 1e6), self._keep_ms)
        if await self._sent(command):
            if len(self._covered) >= _MAX_COVERED:
                self._covered.clear()
            self._covered[credential] = now + COVERED_S
            if self._lost:
                await self._note_everybody()
        else:
            self._lost = True

    async def during(self, credential: str, write: Awaitable[Result]) -> Result:
        """Return the result of a write, which is noted while it runs; again if it takes longer than a note covers."""
        if self._is_noted(credential):
            result = await write
        else:
            result, _ = await asyncio.gather(write, self.note(credential))
        await self.note(credential)
        return result

    async def last(self, credential: str) -> float | None:
        """Return the monotonic time at which `credential` last wrote, at the latest; None if that is not known."""
        if self._lost and not await self._note_everybody():
            return None
        try:
            ages = await self._client.ask([_AGE.command(_key(credential), 0), _AGE.command(_EVERYBODY, 1)])
        except RedisUnavailable:
            return None
        now = time.monotonic()  # the ages were taken before
        own, everybody = ages
        if not isinstance(everybody, int) or not (own is None or isinstance(own, int)):
            return None
        age_us = everybody if own is None else min(own, everybody)
        return now - age_us / 1e6

    def _is_noted(self, credential: str) -> bool:
        """Return True if a write that is committed now is covered by a note."""
        return time.monotonic() < self._covered.get(credential, 0.0)

    async def _note_everybody(self) -> bool:
        """Make up for notes that did not reach Redis; return False if it still does not answer."""
        self._lost = False
        if not await self._sent(_NOTE.command(_EVERYBODY, 0, 0)):
            self._lost = True
        return not self._lost

    async def _sent(self, command: RedisCommand) -> bool:
        try:
            return await self._client.ask([command]) == [1]
        except RedisUnavailable:
            return False


def _key(credential: str) -> str:
    return f"wb:wrote:{credential}"
