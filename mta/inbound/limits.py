"""Slow down clients that try out addresses: unknown recipients per session and per network."""

from typing import Final

from engine.store.rate_limits import RateLimiter

MAX_UNKNOWN: Final = 10  # unknown recipients in a session; the last one is answered 421
MAX_UNKNOWN_HOURLY: Final = 100  # of one network (an IPv4 address or an IPv6 /64), in all processes together
_PER_S: Final = MAX_UNKNOWN_HOURLY / 3600


class UnknownRecipientLimit:
    """The count of unknown recipients per network, shared through Redis; while Redis is away each process counts."""

    def __init__(self, limits: RateLimiter) -> None:
        self._limits = limits

    async def is_exceeded(self, client: str, in_session: int) -> bool:
        """Count an unknown recipient, the `in_session`-th of its session; True if the client must leave."""
        found = await self._limits.check(f"mx:unknown:{client}", _PER_S, burst_s=(MAX_UNKNOWN_HOURLY - 1) / _PER_S)
        return in_session >= MAX_UNKNOWN or not found.allowed
