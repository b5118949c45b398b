"""Time GET requests of a bench, one after the other on one connection."""

import time
from typing import Final

import aiohttp

from loadtests.bench import figures
from loadtests.bench.run_control import BenchFailed

_FIRST: Final = 5  # requests that fill caches, not timed


async def times(client: aiohttp.ClientSession, path: str, count: int) -> dict[str, float]:
    """Return percentiles, in milliseconds, of `count` requests after a few that fill caches."""
    for _ in range(_FIRST):
        await get(client, path)
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await get(client, path)
        took.append(time.perf_counter() - began)
    return figures.percentiles(took) or {}


async def get(client: aiohttp.ClientSession, path: str) -> bytes:
    """Return the body of a reply; raises BenchFailed unless its status is 200."""
    async with client.get(path) as answer:
        body = await answer.read()
        if answer.status != 200:
            raise BenchFailed(f"{path} was answered by {answer.status}: {body[:300]!r}")
        return body
