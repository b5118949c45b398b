"""Sample queue, CPU and memory of the service once a second during a load test."""

import asyncio
import csv
import resource
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import asyncpg
from msgspec import Struct

from engine.store.queries import Queries
from loadtests.bench import measure

EVERY_S: Final = 1.0
QUEUE: Final = "queue.csv"
PROCESSES: Final = "processes.csv"
_PATIENCE_S: Final = 10.0
_SAMPLE_QUEUE = Queries.beside(__file__, "samples.sql").command("sample_queue")


class LoadSample(Struct, frozen=True):
    """The state of service and machine at one time."""

    at: float  # wall clock, s
    depth: int
    never_tried: int  # deliveries never tried
    healthy: int  # deliveries to domains that are expected to take mail
    oldest_s: float
    hooks: int
    cpu_ms: dict[str, float]  # since the processes began, by role
    memory_mb: dict[str, float]
    busy_ms: float = 0.0  # of the whole machine, since it started


class Sampler:
    """Samples the service once a second; `moments` holds all samples of the load test."""

    def __init__(self, pool: asyncpg.Pool | None, roots: Mapping[str, list[int]], slow_domains: Iterable[str]) -> None:
        self.moments: list[LoadSample] = []
        self.roots = dict(roots)  # the caller adds what starts later
        self.memory_kind = "pss"
        self._pool = pool
        self._slow_domains = list(slow_domains)

    async def run(self) -> None:
        """Sample until cancelled."""
        due = time.monotonic()
        while True:
            await self.sample()
            due = max(due + EVERY_S, time.monotonic())
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def sample(self) -> LoadSample:
        """Take one sample, append it to `moments` and return it."""
        queue = await self._queue()
        usage = await asyncio.to_thread(measure.sample, self.roots)
        memory, self.memory_kind = await asyncio.to_thread(measure.memory_mb, self.roots)
        own = resource.getrusage(resource.RUSAGE_SELF)
        cpu = {role: used.cpu_ms for role, used in usage.roles.items()}
        cpu["sampler"] = (own.ru_utime + own.ru_stime) * 1000
        moment = LoadSample(time.time(), *queue, cpu, memory, usage.machine_busy_ms)
        self.moments.append(moment)
        return moment

    async def _queue(self) -> tuple[int, int, int, float, int]:
        """Return the queue figures, or zeros without a database connection."""
        if self._pool is None:
            return 0, 0, 0, 0.0, 0
        async with asyncio.timeout(_PATIENCE_S):
            [row] = await _SAMPLE_QUEUE.records(self._pool, self._slow_domains)
        return row["depth"], row["never_tried"], row["healthy"], max(0.0, row["oldest_s"] or 0.0), row["hooks"]


def write_tables(moments: list[LoadSample], folder: Path, began: float) -> None:
    """Write both CSV tables; seconds count from the beginning of the load."""
    with (folder / QUEUE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("second", "deliveries", "never_tried", "oldest_s", "webhook_posts"))
        for one in moments:
            second = f"{one.at - began:.1f}"
            writer.writerow((second, one.depth, one.never_tried, f"{one.oldest_s:.2f}", one.hooks))
    with (folder / PROCESSES).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("second", "role", "cpu_percent_of_a_core", "memory_mb"))
        for before, after in pairwise(moments):
            for role, percent in cores(before, after).items():
                memory = after.memory_mb.get(role)
                shown = "" if memory is None else f"{memory:.1f}"
                writer.writerow((f"{after.at - began:.1f}", role, f"{percent * 100:.1f}", shown))


def cores(before: LoadSample, after: LoadSample) -> dict[str, float]:
    """Return the cores that each role used between two samples."""
    took_ms = max(1.0, (after.at - before.at) * 1000)
    return {
        role: max(0.0, used - before.cpu_ms[role]) / took_ms
        for role, used in after.cpu_ms.items()
        if role in before.cpu_ms
    }


def spent(moments: list[LoadSample], since: float, until: float) -> dict[str, float]:
    """Return CPU in ms by role between the samples nearest to two times; includes processes that ended in between."""
    if not moments:
        return {}
    first = min(range(len(moments)), key=lambda place: abs(moments[place].at - since))
    last = min(range(len(moments)), key=lambda place: abs(moments[place].at - until))
    most: dict[str, float] = {}
    for one in moments[first : last + 1]:
        for role, used in one.cpu_ms.items():
            most[role] = max(most.get(role, 0.0), used)
    return {role: used - moments[first].cpu_ms.get(role, 0.0) for role, used in most.items()}


def others(moments: list[LoadSample], since: float, until: float) -> float:
    """Return the cores that other programs used between two times."""
    within = [one for one in moments if since <= one.at <= until]
    if len(within) < 2:
        return 0.0
    took_ms = (within[-1].at - within[0].at) * 1000
    ours = sum(spent(moments, within[0].at, within[-1].at).values())
    return max(0.0, within[-1].busy_ms - within[0].busy_ms - ours) / took_ms


def settings_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as text, without paths, URLs, secrets and ports."""
    place = {"state", "database_url", "redis_url", "key_pepper", "public_url", "dns_servers"}
    return {name: str(value) for name, value in values.items() if name not in place and not name.endswith("_port")}
