"""The bystander of `ops bench send`: another account that sends 2 KB messages at a constant rate, first alone, then
beside the load.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from loadtests.bench import figures
from loadtests.bench.check import SinkArrivals
from loadtests.bench.load import LoadOrder, LoadProcess, times_of

FIRST_NUMBER: Final = 5_000_000_000  # its messages are numbered from here on, those of the load from 0
DOMAIN: Final = "bystander.test"
CONNECTIONS: Final = 16
_ALONE_S: Final = 15
_ORDER_S: Final = 1.0
_PATIENCE_S: Final = 60.0


class Bystander:
    """Sends through a load process, and keeps the times of its accepted messages by phase."""

    def __init__(self, load: LoadProcess, rate: float) -> None:
        self.refused: dict[str, int] = {}
        self._load = load
        self._rate = rate
        self._next = FIRST_NUMBER
        self._phases: dict[str, list[tuple[int, float, float]]] = {"alone": [], "beside": []}

    @property
    def accepted(self) -> set[int]:
        """Return the numbers of its accepted messages."""
        return {number for sent in self._phases.values() for number, _, _ in sent}

    async def send_alone(self) -> None:
        """Send for some seconds, after one second that is not counted."""
        await self._order("warm")
        for _ in range(_ALONE_S):
            await self._order("alone")

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Send until the end of the block."""
        over = asyncio.Event()

        async def send() -> None:
            while not over.is_set():
                await self._order("beside")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            try:
                yield
            finally:
                over.set()

    def figures(self, arrived: SinkArrivals) -> dict[str, Any]:
        """Return percentiles of both phases, to the 202 and to the remote 250, and the second p99 as a multiple of the
        first.
        """
        found: dict[str, Any] = {"per_s": self._rate}
        for phase in ("alone", "beside"):
            sent = self._phases[phase]
            found[phase] = {
                "messages": len(sent),
                "accept_ms": figures.percentiles(took for _, took, _ in sent),
                "arrive_ms": figures.percentiles(
                    arrived.at[number] - answered + took for number, took, answered in sent
                ),
            }
        for way in ("accept", "arrive"):
            alone, beside = (found[phase][f"{way}_ms"] for phase in ("alone", "beside"))
            found[f"{way}_p99_times"] = round(beside["p99"] / alone["p99"], 2) if alone and beside else None
        return found

    async def _order(self, phase: str) -> None:
        first, count = self._next, max(1, round(self._rate * _ORDER_S))
        self._next += count
        load = await self._load.send(LoadOrder(first=first, count=count, rate=self._rate, timeout_s=_PATIENCE_S))
        for status, refused in load.refused.items():
            self.refused[status] = self.refused.get(status, 0) + refused
        latencies, answers = times_of(load)
        times = self._phases.setdefault(phase, [])
        for place, (took, answered) in enumerate(zip(latencies, answers, strict=True)):
            if not math.isnan(took):
                times.append((first + place, took, answered))
