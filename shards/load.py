"""Measure the deliveries per second of each shard and of the busiest domains, in each mta process.

A delivery is counted in two dictionaries in memory; every few seconds two statements write the rates of the last minute
to PostgreSQL. The rebalancer reads them to balance shards and to split busy domains. A crash loses only measurements.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Collection

import asyncpg
import structlog
from msgspec import Struct

from engine.store.database_errors import DatabaseUnavailable
from engine.store.queries import Queries, columns
from shards.ownership import ShardOwnership

WRITE_S = 5.0
MINUTE_S = 60.0
MAX_AGE_S = 4 * WRITE_S  # readers ignore older rates: their process has stopped
MAX_DOMAINS = 20  # written by each process
MAX_COUNTED = 20_000  # domains in one slice; a domain that first appears beyond them is rare
MIN_RATE = 0.2  # messages per second; slower domains are not written

_SQL = Queries.beside(__file__, "load.sql")
_WRITE_SHARDS = _SQL.command("write_shard_rates")
_WRITE_DOMAINS = _SQL.command("write_domain_rates")
_DELETE_SHARDS = _SQL.command("delete_shard_rates")
_DELETE_DOMAINS = _SQL.command("delete_domain_rates")

_log = structlog.get_logger("shards")


class ShardRate(Struct, frozen=True):
    """The deliveries that one shard settles per second."""

    shard: int
    rate: float


class DomainRate(Struct, frozen=True):
    """The deliveries that one recipient domain settles per second."""

    domain: str
    rate: float


SHARD_RATES = _SQL.rows("read_shard_rates", ShardRate)
DOMAIN_RATES = _SQL.rows("read_domain_rates", DomainRate)


class _Slice:
    def __init__(self, now: float) -> None:
        self.began = now
        self.shards: Counter[int] = Counter()
        self.domains: Counter[str] = Counter()


class ShardLoad:
    """The deliveries that one process settled in the last minute, counted in slices of a few seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._slices: deque[_Slice] = deque([_Slice(now())])
        self._since: dict[int, float] = {}  # when this process got a shard

    def count(self, shard: int, domain: str) -> None:
        """Count one settled delivery."""
        latest = self._slices[-1]
        latest.shards[shard] += 1
        if domain in latest.domains or len(latest.domains) < MAX_COUNTED:
            latest.domains[domain] += 1

    def rotate(self, owned: Collection[int]) -> None:
        """Begin a new slice and drop those older than a minute; called every few seconds with the owned shards."""
        now = self._now()
        self._since = {shard: self._since.get(shard, now) for shard in owned}
        self._slices.append(_Slice(now))
        while len(self._slices) > 1 and self._slices[1].began <= now - MINUTE_S:
            self._slices.popleft()

    def shards(self) -> dict[int, float]:
        """Return messages per second by owned shard, over the last minute or since this process got the shard."""
        totals: Counter[int] = Counter()
        for one in self._slices:
            totals.update(one.shards)
        now, began = self._now(), self._slices[0].began
        return {
            shard: totals[shard] / max(WRITE_S, min(now - began, now - since)) for shard, since in self._since.items()
        }

    def domains(self) -> list[tuple[str, float]]:
        """Return the busiest domains with their messages per second, busiest first."""
        totals: Counter[str] = Counter()
        for one in self._slices:
            totals.update(one.domains)
        seconds = max(WRITE_S, self._now() - self._slices[0].began)
        rates = [(domain, count / seconds) for domain, count in totals.most_common(MAX_DOMAINS)]
        return [(domain, rate) for domain, rate in rates if rate >= MIN_RATE]

    @property
    def rate(self) -> float:
        """Return messages per second over all shards."""
        seconds = max(WRITE_S, self._now() - self._slices[0].began)
        return sum(one.shards.total() for one in self._slices) / seconds

    async def run(self, pool: asyncpg.Pool, process: str, ownership: ShardOwnership) -> None:
        """Write the rates every `WRITE_S` seconds, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_S)
            self.rotate(ownership.shards)
            try:
                await self.write(pool, process)
            except DatabaseUnavailable as error:
                _log.warning("shard loads not written", error=repr(error))

    async def write(self, pool: asyncpg.Pool, process: str) -> None:
        """Write the present rates. Raises DatabaseUnavailable."""
        shards, domains = sorted(self.shards().items()), sorted(self.domains())
        if shards:
            await _WRITE_SHARDS.execute(pool, process, *columns(shards, 2))
        if domains:
            await _WRITE_DOMAINS.execute(pool, process, *columns(domains, 2))


async def delete_old(pool: asyncpg.Pool) -> None:
    """Delete rates that no process has renewed for a minute."""
    await _DELETE_SHARDS.execute(pool, MINUTE_S)
    await _DELETE_DOMAINS.execute(pool, MINUTE_S)
