"""How busy each shard and the busiest domains are: counted in memory by whoever delivers, told to Postgres.

Counting costs two dictionary entries a delivery; every few seconds the rates of the last minute are written in two
statements. The figures balance the map and split hot domains; nothing is lost when they are.
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

TELL_S = 5.0
MINUTE_S = 60.0
FRESH_S = 4 * TELL_S  # rates older than this are nobody's
MAX_DOMAINS = 20  # told by each process
MAX_COUNTED = 20_000  # domains in one slice; beyond, the rare ones are not hot anyway
MIN_RATE = 0.2  # messages a second of a domain worth telling

_SQL = Queries.beside(__file__, "load.sql")
_WRITE_SHARDS = _SQL.command("write_shard_rates")
_WRITE_DOMAINS = _SQL.command("write_domain_rates")
_FORGET_SHARDS = _SQL.command("forget_shard_rates")
_FORGET_DOMAINS = _SQL.command("forget_domain_rates")

_log = structlog.get_logger("shards")


class ShardRate(Struct, frozen=True):
    """Deliveries settled a second in a shard."""

    shard: int
    rate: float


class DomainRate(Struct, frozen=True):
    """The same for a domain."""

    domain: str
    rate: float


SHARD_RATES = _SQL.rows("read_shard_rates", ShardRate)
DOMAIN_RATES = _SQL.rows("read_domain_rates", DomainRate)


class _Slice:
    def __init__(self, now: float) -> None:
        self.began = now
        self.shards: Counter[int] = Counter()
        self.domains: Counter[str] = Counter()


class Load:
    """What one process settled in the last minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._slices: deque[_Slice] = deque([_Slice(now())])
        self._since: dict[int, float] = {}  # when a shard came

    def count(self, shard: int, domain: str) -> None:
        """One delivery more is settled."""
        latest = self._slices[-1]
        latest.shards[shard] += 1
        if domain in latest.domains or len(latest.domains) < MAX_COUNTED:
            latest.domains[domain] += 1

    def turn(self, owned: Collection[int]) -> None:
        """Begin another slice; call it every few seconds with the shards that are owned now."""
        now = self._now()
        self._since = {shard: self._since.get(shard, now) for shard in owned}
        self._slices.append(_Slice(now))
        while len(self._slices) > 1 and self._slices[1].began <= now - MINUTE_S:
            self._slices.popleft()

    def shards(self) -> dict[int, float]:
        """Messages a second by owned shard, over the last minute or since it came."""
        totals: Counter[int] = Counter()
        for one in self._slices:
            totals.update(one.shards)
        now, began = self._now(), self._slices[0].began
        return {
            shard: totals[shard] / max(TELL_S, min(now - began, now - since)) for shard, since in self._since.items()
        }

    def domains(self) -> list[tuple[str, float]]:
        """The busiest domains and their messages a second."""
        totals: Counter[str] = Counter()
        for one in self._slices:
            totals.update(one.domains)
        seconds = max(TELL_S, self._now() - self._slices[0].began)
        rates = [(domain, count / seconds) for domain, count in totals.most_common(MAX_DOMAINS)]
        return [(domain, rate) for domain, rate in rates if rate >= MIN_RATE]

    @property
    def rate(self) -> float:
        """Messages a second in all."""
        seconds = max(TELL_S, self._now() - self._slices[0].began)
        return sum(one.shards.total() for one in self._slices) / seconds

    async def run(self, pool: asyncpg.Pool, process: str, ownership: ShardOwnership) -> None:
        """Tell Postgres, until cancelled."""
        while True:
            await asyncio.sleep(TELL_S)
            self.turn(ownership.shards)
            try:
                await self.tell(pool, process)
            except DatabaseUnavailable as error:
                _log.warning("loads not told", error=repr(error))

    async def tell(self, pool: asyncpg.Pool, process: str) -> None:
        """The rates of this moment. Raises DatabaseUnavailable."""
        shards, domains = sorted(self.shards().items()), sorted(self.domains())
        if shards:
            await _WRITE_SHARDS.execute(pool, process, *columns(shards, 2))
        if domains:
            await _WRITE_DOMAINS.execute(pool, process, *columns(domains, 2))


async def forget(pool: asyncpg.Pool) -> None:
    """Drop what nobody measures any more."""
    await _FORGET_SHARDS.execute(pool, MINUTE_S)
    await _FORGET_DOMAINS.execute(pool, MINUTE_S)
