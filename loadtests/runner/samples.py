"""Sample queue, CPU and memory of the service once a second during a load test."""

import asyncio
import csv
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import asyncpg
from msgspec import Struct, structs

from engine.store.queries import Queries
from loadtests.bench import figures, measure
from loadtests.bench.measure import UsageSample

EVERY_S: Final = 1.0
FILE: Final = "samples.csv"
_PATIENCE_S: Final = 10.0
_SAMPLE_QUEUE = Queries.beside(__file__, "samples.sql").command("sample_queue")


class LoadSample(Struct, frozen=True):
    """The state of service and machine at one time."""

    depth: int  # deliveries in the queue
    never_tried: int
    healthy: int  # deliveries to domains that are expected to take mail
    oldest_s: float
    hooks: int  # webhook posts in the queue
    usage: UsageSample
    memory_mb: dict[str, float]


class Sampler:
    """Samples the service once a second; `moments` holds all samples of the load test, at least two."""

    def __init__(self, pool: asyncpg.Pool, roots: Mapping[str, list[int]], slow_domains: Iterable[str]) -> None:
        self.moments: list[LoadSample] = []
        self.memory_kind = "pss"
        self._roots = roots
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
        async with asyncio.timeout(_PATIENCE_S):
            [row] = await _SAMPLE_QUEUE.records(self._pool, self._slow_domains)
        usage = await asyncio.to_thread(measure.sample, self._roots)
        memory, self.memory_kind = await asyncio.to_thread(measure.memory_mb, self._roots)
        oldest_s = max(0.0, row["oldest_s"] or 0.0)
        moment = LoadSample(
            row["depth"], row["never_tried"], row["healthy"], oldest_s, row["hooks"], usage, memory
        )  # fmt: skip
        self.moments.append(moment)
        return moment

    def figures(self, messages: int) -> dict[str, Any]:
        """Return CPU per message, its parts by role, and the highest memory and queue; processes that ended count."""
        most = {
            role: max((one.usage.roles[role] for one in self.moments), key=lambda used: used.cpu_ms)
            for role in self._roots
        }
        last = structs.replace(self.moments[-1].usage, roles=most)
        peaks = {role: round(max(one.memory_mb.get(role, 0.0) for one in self.moments), 1) for role in self._roots}
        return {
            **figures.usage(self.moments[0].usage, last, max(1, messages)),
            "memory_kind": self.memory_kind,
            "memory_peak_mb_by_role": {role: peaks[role] for role in figures.ordered(peaks)},
            "queue_peak": max(one.depth for one in self.moments),
            "oldest_peak_s": round(max(one.oldest_s for one in self.moments), 1),
            "webhook_queue_peak": max(one.hooks for one in self.moments),
        }

    def write(self, folder: Path) -> None:
        """Write the samples as a table; CPU is in percent of a core since the sample before."""
        began = self.moments[0].usage.at
        with (folder / FILE).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            titles = [f"{role}_{what}" for role in self._roots for what in ("cpu_percent", "memory_mb")]
            writer.writerow(("second", "deliveries", "never_tried", "oldest_s", "webhook_posts", *titles))
            for before, after in pairwise(self.moments):
                took_ms = (after.usage.at - before.usage.at) * 1000
                cells = [f"{after.usage.at - began:.1f}", after.depth, after.never_tried, f"{after.oldest_s:.2f}"]
                cells.append(after.hooks)
                for role in self._roots:
                    used_ms = after.usage.roles[role].cpu_ms - before.usage.roles[role].cpu_ms
                    cells += [f"{max(0.0, 100 * used_ms / took_ms):.1f}", f"{after.memory_mb.get(role, 0.0):.1f}"]
                writer.writerow(cells)
