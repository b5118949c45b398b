"""The limit of unknown recipients of one network."""

from contextlib import aclosing

from engine.store.rate_limits import RateLimiter
from engine.store.redis import connect
from mta.inbound.limits import MAX_UNKNOWN, MAX_UNKNOWN_HOURLY, UnknownRecipientLimit


async def test_without_redis_each_process_counts_unknown_recipients_by_itself() -> None:
    async with aclosing(connect("redis://127.0.0.1:1/0")) as nobody:
        limit = UnknownRecipientLimit(RateLimiter(nobody))
        asked = [await limit.is_exceeded("192.0.2.7", 1) for _ in range(MAX_UNKNOWN_HOURLY + 1)]

        assert asked.index(True) in (MAX_UNKNOWN_HOURLY - 1, MAX_UNKNOWN_HOURLY)
        assert await limit.is_exceeded("192.0.2.8", MAX_UNKNOWN)
        assert not await limit.is_exceeded("192.0.2.9", MAX_UNKNOWN - 1)
