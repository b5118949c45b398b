"""A run of `ops bench`: warm-up, signature benchmark, counted run, signature benchmark, paced run, check."""

import asyncio
import contextlib
import math
import shutil
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from msgspec import Struct, to_builtins

from loadtests.bench import check, figures, flame_graphs, measure, report
from loadtests.bench import stored as stored_messages
from loadtests.bench.bystander import Bystander
from loadtests.bench.check import SinkArrivals
from loadtests.bench.load import Door, LoadOrder, LoadProcess, LoadResult, times_of
from loadtests.bench.measure import UsageSample
from loadtests.bench.rounds import PATIENCE_S, SLOWEST_PER_S
from loadtests.bench.run import BenchRun
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import BenchService, filesystem
from loadtests.bench.yardstick import Signatures, Yardstick
from loadtests.kit.check import Check
from ops.host.process_specs import ROOT

DOMAINS: Final = {"a": 10, "b": 1, "c": 1_000}  # by scenario
MESSAGES: Final = 20_000
MIN_LARGE, LARGE_BYTES = 40, 400_000_000  # messages with attachments: at least so many, or so many octets
PACED_S: Final = 10.0
PACED_SHARE: Final = 0.5
_POLL_S: Final = 0.02
_START_S: Final = 5.0
_QUIET_CPU_MS: Final = 30.0
_QUIET_S: Final = 1.0
_METRICS_TIMEOUT_S: Final = 10


class SendOptions(Struct, frozen=True, kw_only=True):
    """The options of `ops bench`."""

    scenario: str = "a"
    messages: int | None = None  # counted; by default 20,000, and fewer of large ones
    warm_up: int | None = None  # by default a twentieth of them
    connections: int = 64
    runs: int = 1
    drain: int | None = None  # messages to queue before delivery begins
    delivery_only: bool = False  # the same as `drain` with all messages, in batches of 100
    profile: bool = False
    paced: bool = True
    tls: bool = False
    rsa: bool = False  # one signature: the domain's Ed25519 key counts as not published
    batch: int = 1
    domains: int | None = None  # in place of the scenario's
    rate: float | None = None  # of the paced run, in place of half the measured rate; of queueing in a drain
    stored: int = 0  # messages of others that lie in the database before
    size: int = 0  # octets of a random attachment
    door: Door = "json"
    bystander: float | None = None  # 2 KB messages a second of another account

    @property
    def recipient_domains(self) -> int:
        """Return the number of recipient domains."""
        return self.domains or DOMAINS[self.scenario]

    @property
    def queued_first(self) -> int | None:
        """Return how many messages are queued before delivery begins; None if it runs all the time."""
        return self.drain or (self.counted if self.delivery_only else None)

    @property
    def counted(self) -> int:
        """Return the number of counted messages."""
        return self.messages or min(MESSAGES, max(MIN_LARGE, LARGE_BYTES // max(1, self.size)))

    @property
    def uncounted(self) -> int:
        """Return the number of messages before."""
        return self.counted // 20 if self.warm_up is None else self.warm_up

    @property
    def per_request(self) -> int:
        """Return the number of messages per request."""
        return 100 if self.delivery_only else self.batch


class MeasuredRun:
    """A run on a running service, and the messages that it has sent so far."""

    def __init__(
        self,
        options: SendOptions,
        service: BenchService,
        generator: LoadProcess,
        yardstick: Yardstick,
        run: BenchRun,
        bystander: Bystander | None = None,
    ) -> None:
        self._options = options
        self._service = service
        self._generator = generator
        self._yardstick = yardstick
        self._folder = run.folder
        self._bystander = bystander
        self._say = run.say
        self._next = 0
        self._accepted: set[int] = set()
        self._loads: list[tuple[int, LoadResult]] = []  # with the number of the first message

    async def run(self) -> dict[str, Any]:
        """Carry out the run; a result whose check failed has `checked` false and no speed."""
        options, config = self._options, self._service.settings
        drained = options.queued_first
        result: dict[str, Any] = {
            "scenario": options.scenario, "mode": "drain" if drained else "end to end",
            "domains": options.recipient_domains, "messages": drained or options.counted, "door": options.door,
            "attached_bytes": options.size,
            "connections": options.connections, "batch": options.per_request, "tls": options.tls,
            "signatures": ["rsa-sha256"] if options.rsa else ["rsa-sha256", "ed25519-sha256"],
            "stored": options.stored, "api_workers": config.api_workers, "mta_workers": config.mta_workers,
        }  # fmt: skip
        if options.stored:
            await stored_messages.store(self._service.pool, options.stored, self._say)
        measured = await (self._drain(drained) if drained else self._end_to_end())
        paced = await self._paced(measured["delivered_per_s"]) if options.paced and not drained else None
        self._say("Checking that every message arrived once")
        arrived = await asyncio.to_thread(check.arrivals, self._service)
        others = self._bystander.accepted if self._bystander else ()
        findings = await check.check(self._service, arrived, self._accepted, others)
        findings.insert(0, self._all_accepted())
        result["checked"] = all(finding.ok for finding in findings)
        result["checks"] = to_builtins(findings)
        if not result["checked"]:
            result["logs"] = copy_logs(self._service)
            return result
        full = self._latencies(measured.pop("load"), arrived)
        if drained:
            full["deliver_ms"] = None  # how long it was held back
        result |= measured
        result["bystander"] = self._bystander.figures(arrived) if self._bystander else None
        result |= {"at_full_rate": full, "accept_ms": None, "deliver_ms": None, "paced_per_s": None}
        if paced is not None:
            result |= self._latencies(paced[1], arrived) | {"paced_per_s": round(paced[0], 1), "paced_usage": paced[2]}
        result["machine"] = measure.machine(self._service.settings.state, filesystem(self._service.settings.state))
        return result

    async def measure_around(self, work: Callable[[], Awaitable[None]]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Measure end to end before and after `work`; raises BenchFailed unless every message arrived once."""
        both = []
        for number in range(2):
            if number:
                await work()
            measured = await self._end_to_end()
            del measured["load"]
            both.append(measured)
        self._say("Checking that every message arrived once")
        arrived = await asyncio.to_thread(check.arrivals, self._service)
        findings = [self._all_accepted(), *await check.check(self._service, arrived, self._accepted)]
        if wrong := [finding.shown for finding in findings if not finding.ok]:
            raise BenchFailed("\n".join(wrong))
        return both[0], both[1]

    async def _end_to_end(self) -> dict[str, Any]:
        options = self._options
        if options.uncounted:
            self._say(f"Warming up with {options.uncounted:,} messages")
            await self._load(options.uncounted)
            await self._settled(options.uncounted)
        await asyncio.sleep(_QUIET_S)
        if self._bystander is not None:
            self._say("Measuring the bystander alone")
            await self._bystander.send_alone()
        first = await asyncio.to_thread(self._yardstick.measure)

        async def counted() -> tuple[int, LoadResult, float, float]:
            async with self._bystander.beside() if self._bystander else contextlib.nullcontext():
                place, load = await self._load(options.counted)
                if self._bystander is not None:
                    await self._settled(options.counted, self._service.access.account_id)
            return place, load, load.began, await self._settled(options.counted)

        self._say(f"Measuring {options.counted:,} messages to {options.recipient_domains:,} domains")
        return await self._measured(counted, options.counted, first)

    async def _drain(self, count: int) -> dict[str, Any]:
        """Queue all messages, then deliver them, to measure both costs separately.

        The queue stays locked while the mta processes start, so that importing their modules is not counted.
        """
        self._say(f"Queueing {count:,} messages with delivery stopped")
        before = self._sample()
        place, load = await self._load(count, rate=self._options.rate)
        queueing = figures.usage(before, self._sample(), count)
        await asyncio.sleep(_QUIET_S)
        first = await asyncio.to_thread(self._yardstick.measure)
        self._say(f"Delivering {count:,} messages to {self._options.recipient_domains:,} domains")
        async with self._service.lock_queue() as unlock:
            await self._service.start_delivery()
            await self._mta_is_quiet()

            async def delivered() -> tuple[int, LoadResult, float, float]:
                began = time.monotonic()
                await unlock()
                return place, load, began, await self._settled(count)

            measured = await self._measured(delivered, count, first)
        return measured | {"queueing": queueing | {"accepted_per_s": figures.rate(load, count)}}

    async def _measured(
        self, work: Callable[[], Awaitable[tuple[int, LoadResult, float, float]]], count: int, first: Signatures
    ) -> dict[str, Any]:
        """Run `work` with samples, counters, flame graphs and the second signature benchmark around it."""
        counters = await self._counters()
        wal_before, _ = await self._service.wal_position()
        measure.reset_peaks(self._roots())
        at_rest = measure.peaks_mb(self._roots())
        async with flame_graphs.FlameRecorders(self._profiled(), self._folder or Path()):
            before = self._sample()
            place, load, began, ended = await work()
            after = self._sample()
        wal_after, message_bytes = await self._service.wal_position()
        memory, kind = measure.memory_mb(self._roots())
        peaks = measure.peaks_mb(self._roots())
        second = await asyncio.to_thread(self._yardstick.measure)
        grown = await self._counters()  # a second later: what is counted per message is written once a second
        signature_ms = (first.cpu_ms + second.cpu_ms) / 2
        used = figures.usage(before, after, count)
        return {
            "load": (place, load),
            "accepted_per_s": figures.rate(load, count),
            "delivered_per_s": round(count / (ended - began), 1),
            **used,
            "signature_ms": round(signature_ms, 4),
            "signatures_per_s": {"before": round(first.per_s), "after": round(second.per_s)},
            "cost_in_signatures": round(used["server_cpu_ms_per_message"] / signature_ms, 2),
            "rss_mb_by_role": {role: round(memory[role], 1) for role in figures.ordered(memory)},
            "memory_kind": kind,
            "rest_rss_mb_by_role": {role: round(at_rest[role], 1) for role in figures.ordered(at_rest)},
            "peak_rss_mb_by_role": {role: round(peaks[role], 1) for role in figures.ordered(peaks)},
            "message_bytes": round(message_bytes or 0),
            "wal_bytes_per_message": round((wal_after - wal_before) / count),
            "wal_per_content": round((wal_after - wal_before) / count / (message_bytes or 1), 3),
            "flush": figures.flushes(counters, grown),
            "settle_lag": figures.settle_lag(counters, grown),
            "smtp_connections": figures.connections(counters, grown),
            "dns_questions": figures.dns_questions(counters, grown),
        }

    async def _paced(self, measured: float) -> tuple[float, tuple[int, LoadResult], dict[str, Any]]:
        """Send at half the measured rate (or `rate`) for ten seconds; return the rate, the load and the usage."""
        rate = self._options.rate or measured * PACED_SHARE
        count = max(1, round(rate * PACED_S))
        self._say(f"Latencies at {rate:,.0f} messages a second")
        await asyncio.sleep(_QUIET_S)  # what is counted per message is written once a second
        counters, before = await self._counters(), self._sample()
        load = await self._load(count, rate=rate)
        await self._settled(count)
        used = figures.usage(before, self._sample(), count)
        await asyncio.sleep(_QUIET_S)
        return rate, load, used | {"flush": figures.flushes(counters, await self._counters())}

    async def _load(self, count: int, *, rate: float | None = None) -> tuple[int, LoadResult]:
        """Let the generator send `count` messages; return the first number and the result."""
        first = self._next
        timeout_s = PATIENCE_S + count / (rate or SLOWEST_PER_S)
        load = await self._generator.send(LoadOrder(first=first, count=count, rate=rate, timeout_s=timeout_s))
        self._next += count
        latencies, _ = times_of(load)
        self._accepted.update(first + place for place, value in enumerate(latencies) if not math.isnan(value))
        self._loads.append((first, load))
        if not load.accepted:
            raise BenchFailed(f"The service accepted nothing: {load.refused}\n{load.example}")
        return first, load

    async def _settled(self, count: int, account: UUID | None = None) -> float:
        """Wait until nothing is queued, of one account or at all; return the monotonic time."""
        deadline = time.monotonic() + PATIENCE_S + count / SLOWEST_PER_S
        while await self._service.anything_queued(account):
            if time.monotonic() > deadline:
                raise BenchFailed("The queue did not empty.")
            await asyncio.sleep(_POLL_S)
        return time.monotonic()

    async def _mta_is_quiet(self) -> None:
        """Wait until the mta processes are idle, at most `_START_S`."""
        deadline = time.monotonic() + _START_S
        used = math.inf
        while time.monotonic() < deadline:
            now = self._sample().roles["mta"].cpu_ms
            if now - used < _QUIET_CPU_MS and now >= used:
                return
            used = now
            await asyncio.sleep(_QUIET_S / 2)

    def _all_accepted(self) -> Check:
        asked, refused = 0, ""
        for _, load in self._loads:
            asked += load.accepted + sum(load.refused.values())
            if load.refused and not refused:
                refused = f"; {load.refused}, first: {load.example}"
        accepted = len(self._accepted)
        others = self._bystander.refused if self._bystander else {}
        if others:
            refused += f"; of the bystander: {others}"
        fine = accepted == asked and not others
        return Check("every message sent was accepted", fine, f"{accepted} of {asked}{refused}")

    def _latencies(self, sent: tuple[int, LoadResult], arrived: SinkArrivals) -> dict[str, Any]:
        """Return percentiles of acceptance, and from the 202 to the sink's 250, which may come first (negative)."""
        first, load = sent
        latencies, answers = times_of(load)
        ways = [arrived.at[first + place] - at for place, at in enumerate(answers) if not math.isnan(at)]
        return {"accept_ms": figures.percentiles(latencies), "deliver_ms": figures.percentiles(ways)}

    def _roots(self) -> dict[str, list[int]]:
        return measure.roots_by_role(self._service.pids()) | {"generator": [self._generator.pid]}

    def _sample(self) -> UsageSample:
        return measure.sample(self._roots())

    def _profiled(self) -> dict[str, int]:
        """Return the processes to profile: one mta process and, unless draining, one api worker."""
        if self._folder is None:
            return {}
        pids = self._service.pids()
        targets = {"mta": pids["mta-1"]}
        if self._options.queued_first is None:
            targets["api"] = measure.tree_of(pids["api"])[-1]
        return targets

    async def _counters(self) -> figures.MetricSeries:
        port = self._service.settings.metrics_port
        return figures.parse_metrics(await asyncio.to_thread(_fetched, f"http://127.0.0.1:{port}/metrics"))


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_METRICS_TIMEOUT_S) as answer:  # noqa: S310 - our own service
        return str(answer.read().decode())


def copy_logs(service: BenchService) -> str:
    """Copy the logs of a failed run to a report folder; return a sentence with its path."""
    folder = report.new_folder(ROOT) / "log"
    shutil.copytree(service.settings.state / "log", folder)
    return f"\nThe service's logs: {folder}"
