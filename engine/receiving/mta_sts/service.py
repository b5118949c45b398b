"""Bound the database reads that strangers cause at policy hosts, which have no rate limit (RFC 8461 3.3 wants none)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from engine.base.errors import Refusal
from engine.base.netaddr import network_of
from engine.store.concurrency_limiter import ConcurrencyLimiter

AT_ONCE: Final = 8  # database sessions of a process, of which sending needs others
EACH: Final = 2  # of one network
WAIT_S: Final = 1.0

_reads = ConcurrencyLimiter("reads of policies", at_once=AT_ONCE, each=EACH)


@asynccontextmanager
async def read_slot(address: str | None) -> AsyncIterator[None]:
    """Hold a place for one read by the client at `address`; raises TimeoutError if there is none within WAIT_S."""
    try:
        async with _reads.of(network_of(address or ""), wait_s=WAIT_S):
            yield
    except Refusal:
        raise TimeoutError from None
