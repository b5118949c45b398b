"""Rounds of equal orders to running load processes, with the CPU of the service and of a signature around each."""

import asyncio
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from loadtests.bench import figures, flame_graphs, measure
from loadtests.bench.load import LoadOrder, LoadProcess, LoadResult, times_of
from loadtests.bench.run import BenchRun
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import BenchService
from loadtests.bench.yardstick import Yardstick

WARM_UP: Final = 500  # messages
PATIENCE_S: Final = 60.0
SLOWEST_PER_S: Final = 20.0  # a slower service ends the run


class Rounds:
    """Sends through load processes in turns, so that all of them meet the same load of the machine."""

    def __init__(self, run: BenchRun, service: BenchService, senders: Mapping[str, LoadProcess]) -> None:
        self.sent = 0  # messages of all senders; also the number of the next one
        self._run = run
        self._service = service
        self._senders = senders
        self._yardstick = Yardstick()

    async def measure(self, messages: int, runs: int, profiled: Mapping[str, int]) -> dict[str, Any]:
        """Return by sender the medians of `runs` rounds after a warm-up, and the CPU of a signature.

        `profiled`: the process to profile in the last round, by sender.
        """
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self._senders}
        signatures = []
        for number in range(runs + 1):
            for name in self._senders:
                if number == 0:
                    self._run.say(f"Warming up with {WARM_UP:,} messages, {name}")
                    await self._round(name, WARM_UP)
                    continue
                self._run.say(f"Round {number}: {messages:,} messages, {name}")
                signatures.append((await asyncio.to_thread(self._yardstick.measure)).cpu_ms)
                targets = {name: profiled[name]} if self._run.folder is not None and number == runs else {}
                async with flame_graphs.FlameRecorders(targets, self._run.folder or Path()):
                    found[name].append(await self._round(name, messages))
        signatures.append((await asyncio.to_thread(self._yardstick.measure)).cpu_ms)
        signature_ms = round(statistics.median(signatures), 4)
        result: dict[str, Any] = {name: figures.medians(rounds) for name, rounds in found.items()}
        for one in result.values():
            one["cost_in_signatures"] = round(one["server_cpu_ms_per_message"] / signature_ms, 2)
        return result | {"signature_ms": signature_ms}

    async def send(self, name: str, count: int, rate: float | None = None) -> LoadResult:
        """Send `count` messages; raises BenchFailed if one is refused."""
        timeout_s = PATIENCE_S + count / SLOWEST_PER_S
        order = LoadOrder(first=self.sent, count=count, rate=rate, timeout_s=timeout_s)
        sent = await self._senders[name].send(order)
        self.sent += count
        if sent.refused:
            raise BenchFailed(f"Not every message was accepted: {sent.refused}\n{sent.example}")
        return sent

    async def _round(self, name: str, count: int) -> dict[str, Any]:
        roots = measure.roots_by_role(self._service.pids())
        before = measure.sample(roots)
        sent = await self.send(name, count)
        used = figures.usage(before, measure.sample(roots), count)
        return {
            "accepted_per_s": figures.rate(sent, count),
            "accept_ms": figures.percentiles(times_of(sent)[0]),
            **{key: used[key] for key in ("server_cpu_ms_per_message", "cpu_ms_by_role", "cores_used_by_others")},
        }


def rows_of(found: Mapping[str, Any], signature_ms: float) -> list[tuple[str, str]]:
    """Return the rows of one sender's figures, as people read them."""
    roles = [(role, ms) for role, ms in found["cpu_ms_by_role"].items() if role in measure.SERVER_ROLES and ms]
    return [
        ("accepted a second", f"{found['accepted_per_s']:,.0f}"),
        ("server CPU, ms a message", f"{found['server_cpu_ms_per_message']:.3f}"),
        ("cost in RSA signatures", f"{found['cost_in_signatures']:.2f}"),
        ("… by process", ", ".join(f"{role} {ms / signature_ms:.2f}" for role, ms in roles)),
        ("accept at full rate, ms p50 p95 p99", " ".join(f"{ms:,.1f}" for ms in found["accept_ms"].values())),
        ("cores used by others", f"{found['cores_used_by_others']:.2f}"),
    ]
