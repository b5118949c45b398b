"""The order of a bench: own service, warm-up, yardstick, counted run, yardstick, paced run, check, report."""

import asyncio
import contextlib
import fcntl
import math
import os
import shutil
import signal
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from engine.store.database_errors import DatabaseUnavailable
from msgspec import Struct

from engine.base import settings
from engine.base.settings import BadSetting, Settings
from ops.bench import check, figures, flames, measure, report
from ops.bench import stored as stored_messages
from ops.bench.check import Arrivals, Finding
from ops.bench.load import Generator, GeneratorFailed, Load, Order, Target, times_of
from ops.bench.measure import Sample
from ops.bench.service import SENDER, Service, filesystem, own_service
from ops.bench.yardstick import Signatures, Yardstick
from ops.embedded import CannotServe
from ops.fleet import ROOT, PortTaken
from ops.state import UnusableState
from ops.supervise import StartFailed

DOMAINS: Final = {"a": 10, "b": 1, "c": 1_000}
PACED_S: Final = 10.0
PACED_SHARE: Final = 0.5
SLOWEST_PER_S: Final = 20.0  # a service slower than this, or stuck, ends the run
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.02
_START_S: Final = 5.0
_QUIET_CPU_MS: Final = 30.0
_QUIET_S: Final = 1.0
_METRICS_TIMEOUT_S: Final = 10
_TURN_POLL_S: Final = 0.2
INTERRUPTED: Final = 130

Tell = Callable[[str], None]


class Options(Struct, frozen=True, kw_only=True):
    """What is measured."""

    scenario: str
    messages: int
    warm_up: int
    connections: int
    runs: int
    drain: int | None
    profile: bool
    paced: bool
    tls: bool
    rsa: bool = False  # one signature: the domain's Ed25519 key counts as not published
    batch: int = 1
    domains: int | None = None  # in place of the scenario's
    rate: float | None = None  # of the paced run, in place of half the measured rate; of queueing in a drain
    stored: int = 0  # messages of others that lie in the database before

    @property
    def recipients_domains(self) -> int:
        """Domains that recipients lie under."""
        return self.domains or DOMAINS[self.scenario]


class BenchFailed(RuntimeError):  # noqa: N818 - named for what happened
    """The run could not be carried through."""


_FAILURES: Final = (
    BadSetting, BenchFailed, CannotServe, GeneratorFailed, PortTaken, StartFailed, UnusableState, DatabaseUnavailable, OSError,
    flames.NoProfiler,
)  # fmt: skip


def run(
    *,
    scenario: str = "a",
    messages: int = 20_000,
    warm_up: int = 1_000,
    connections: int = 64,
    runs: int = 1,
    drain: int | None = None,
    profile: bool = False,
    paced: bool = True,
    tls: bool = False,
    rsa: bool = False,
    batch: int = 1,
    domains: int | None = None,
    rate: float | None = None,
    stored: int = 0,
    as_json: bool = False,
) -> int:
    """Measure and print; gives the exit status: 0 measured, 1 failed or not checked, 130 after a signal.

    The result goes to standard output, progress to standard error.
    """
    options = Options(
        scenario=scenario, messages=messages, warm_up=warm_up, connections=connections, runs=runs,
        drain=drain, profile=profile, paced=paced, tls=tls, rsa=rsa, batch=batch, domains=domains,
        rate=rate, stored=stored,
    )  # fmt: skip
    voice = report.Progress()
    try:
        with _turn(voice.say):
            result = asyncio.run(_interruptible(_runs(options, voice.say)))
    except _FAILURES as error:
        voice.fail(str(error) or type(error).__name__)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        voice.fail("Stopped before the end: nothing was measured.")
        return INTERRUPTED
    report.show(result, as_json=as_json)
    return 0 if result["checked"] else 1


async def _runs(options: Options, tell: Tell) -> dict[str, Any]:
    """All runs, each on a fresh service; their medians, or the first that failed its check."""
    if not measure.PROC.joinpath("self/stat").exists():
        raise BenchFailed("`ops bench` reads /proc, so it needs Linux.")
    given = settings.load(os.environ).settings
    folder = report.new_folder(ROOT) if options.profile else None
    if folder is not None:
        flames.program()
    yardstick = Yardstick()
    results = []
    for number in range(1, options.runs + 1):
        if options.runs > 1:
            tell(f"Run {number} of {options.runs}")
        result = await _run(options, given, yardstick, folder, tell)
        if not result["checked"]:
            return result
        results.append(result)
    found: dict[str, Any] = figures.medians(results)
    if options.runs > 1:
        found["runs"] = [{name: one[name] for name in report.KEY_FIGURES} for one in results]
    if folder is not None:
        found["report"] = str(folder)
        report.keep(found, folder)
    return found


async def _run(
    options: Options, given: Settings, yardstick: Yardstick, folder: Path | None, tell: Tell
) -> dict[str, Any]:
    """One run from an empty folder to its result."""
    tell("Starting a service of its own")
    async with own_service(given, tell, delivering=options.drain is None, tls=options.tls, rsa=options.rsa) as service:
        target = Target(
            host=service.settings.api_host,
            port=service.settings.api_port,
            key=service.access.key,
            sender=SENDER,
            domains=options.recipients_domains,
            connections=options.connections,
            folder=str(service.settings.state),
            batch=options.batch,
        )
        async with Generator(target, service.settings.state / "log" / "generator.log") as generator:
            course = Course(options, service, generator, yardstick, folder, tell)
            try:
                return await course.run()
            except (BenchFailed, GeneratorFailed, DatabaseUnavailable, OSError) as error:
                raise BenchFailed(f"{str(error) or type(error).__name__}{_kept_logs(service)}") from error


class Course:
    """One run on a running service."""

    def __init__(
        self,
        options: Options,
        service: Service,
        generator: Generator,
        yardstick: Yardstick,
        folder: Path | None,
        tell: Tell,
    ) -> None:
        self._options = options
        self._service = service
        self._generator = generator
        self._yardstick = yardstick
        self._folder = folder
        self._tell = tell
        self._next = 0
        self._accepted: set[int] = set()
        self._loads: list[tuple[int, Load]] = []  # with the number of the first message

    async def run(self) -> dict[str, Any]:
        """The protocol; the result has `checked` false, and no speed, when the check failed."""
        options = self._options
        drained = options.drain is not None
        result: dict[str, Any] = {
            "scenario": options.scenario,
            "mode": "drain" if drained else "end to end",
            "domains": options.recipients_domains,
            "messages": options.drain if drained else options.messages,
            "connections": options.connections,
            "batch": options.batch,
            "tls": options.tls,
            "signatures": ["rsa-sha256"] if options.rsa else ["rsa-sha256", "ed25519-sha256"],
            "stored": options.stored,
            "api_workers": self._service.settings.api_workers,
            "mta_workers": self._service.settings.mta_workers,
        }
        if options.stored:
            await stored_messages.store(self._service.pool, options.stored, self._tell)
        measured = await (self._drain(options.drain) if options.drain is not None else self._end_to_end())
        paced = await self._paced(measured["delivered_per_s"]) if options.paced and not drained else None
        self._tell("Checking that every message arrived once")
        arrived = await asyncio.to_thread(check.arrivals, self._service)
        findings = await check.check(self._service, arrived, self._accepted)
        findings.insert(0, self._all_accepted())
        result["checked"] = all(finding.ok for finding in findings)
        result["checks"] = [msgspec.to_builtins(finding) for finding in findings]
        if not result["checked"]:
            result["logs"] = _kept_logs(self._service)
            return result
        full = self._latencies(measured.pop("load"), arrived)
        if drained:
            full["deliver_ms"] = None  # how long it was held back
        result |= measured
        result |= {"at_full_rate": full, "accept_ms": None, "deliver_ms": None, "paced_per_s": None}
        if paced is not None:
            result |= self._latencies(paced[1], arrived) | {"paced_per_s": round(paced[0], 1), "paced_usage": paced[2]}
        result["machine"] = measure.machine(self._service.settings.state, filesystem(self._service.settings.state))
        return result

    async def _end_to_end(self) -> dict[str, Any]:
        options = self._options
        if options.warm_up:
            self._tell(f"Warming up with {options.warm_up:,} messages")
            await self._load(options.warm_up)
            await self._settled(options.warm_up)
        await asyncio.sleep(_QUIET_S)
        first = await asyncio.to_thread(self._yardstick.measure)

        async def counted() -> tuple[int, Load, float, float]:
            place, load = await self._load(options.messages)
            return place, load, load.began, await self._settled(options.messages)

        self._tell(f"Measuring {options.messages:,} messages to {options.recipients_domains:,} domains")
        return await self._measured(counted, options.messages, first)

    async def _drain(self, count: int) -> dict[str, Any]:
        """Queue first, then deliver: two costs apart.

        The queue stays locked while the mta processes start, so that loading their modules is no part of draining.
        """
        self._tell(f"Queueing {count:,} messages with delivery stopped")
        before = self._sample()
        place, load = await self._load(count, rate=self._options.rate)
        queueing = figures.usage(before, self._sample(), count)
        await asyncio.sleep(_QUIET_S)
        first = await asyncio.to_thread(self._yardstick.measure)
        self._tell(f"Delivering {count:,} messages to {self._options.recipients_domains:,} domains")
        async with self._service.queue_held() as let_go:
            await self._service.start_delivery()
            await self._mta_is_quiet()

            async def delivered() -> tuple[int, Load, float, float]:
                began = time.monotonic()
                await let_go()
                return place, load, began, await self._settled(count)

            measured = await self._measured(delivered, count, first)
        return measured | {"queueing": queueing | {"accepted_per_s": _rate(load, count)}}

    async def _measured(
        self,
        work: Callable[[], Awaitable[tuple[int, Load, float, float]]],
        count: int,
        first: Signatures,
    ) -> dict[str, Any]:
        """Everything around the counted run: samples, counters, flame graphs, the second yardstick."""
        counters = await self._counters()
        async with flames.Recorders(self._profiled(), self._folder or Path()):
            before = self._sample()
            place, load, began, ended = await work()
            after = self._sample()
        memory, kind = measure.memory_mb(self._roots())
        peaks = measure.peaks_mb(self._roots())
        second = await asyncio.to_thread(self._yardstick.measure)
        grown = await self._counters()  # a second later: what is counted per message is written once a second
        signature_ms = (first.cpu_ms + second.cpu_ms) / 2
        used = figures.usage(before, after, count)
        return {
            "load": (place, load),
            "accepted_per_s": _rate(load, count),
            "delivered_per_s": round(count / (ended - began), 1),
            **used,
            "signature_ms": round(signature_ms, 4),
            "signatures_per_s": {"before": round(first.per_s), "after": round(second.per_s)},
            "cost_in_signatures": round(used["server_cpu_ms_per_message"] / signature_ms, 2),
            "rss_mb_by_role": {role: round(memory[role], 1) for role in figures.ordered(memory)},
            "memory_kind": kind,
            "peak_rss_mb_by_role": {role: round(peaks[role], 1) for role in figures.ordered(peaks)},
            "flush": figures.flushes(counters, grown),
            "settle_lag": figures.settle_lag(counters, grown),
            "smtp_connections": figures.connections(counters, grown),
        }

    async def _paced(self, measured: float) -> tuple[float, tuple[int, Load], dict[str, Any]]:
        """At half the measured rate for ten seconds, requests sent when due, whatever is still unanswered; with what a
        message costs then."""
        rate = self._options.rate or measured * PACED_SHARE
        count = max(1, round(rate * PACED_S))
        self._tell(f"Latencies at {rate:,.0f} messages a second")
        before = self._sample()
        load = await self._load(count, rate=rate)
        await self._settled(count)
        return rate, load, figures.usage(before, self._sample(), count)

    async def _load(self, count: int, *, rate: float | None = None) -> tuple[int, Load]:
        """Have the generator send; gives the first number and what became of it."""
        first = self._next
        timeout_s = _PATIENCE_S + count / (rate or SLOWEST_PER_S)
        load = await self._generator.send(Order(first=first, count=count, rate=rate, timeout_s=timeout_s))
        self._next += count
        latencies, _ = times_of(load)
        self._accepted.update(first + place for place, value in enumerate(latencies) if not math.isnan(value))
        self._loads.append((first, load))
        if not load.accepted:
            raise BenchFailed(f"The service accepted nothing: {load.refused}\n{load.example}")
        return first, load

    async def _settled(self, count: int) -> float:
        """When the queue was seen empty, on the monotonic clock."""
        deadline = time.monotonic() + _PATIENCE_S + count / SLOWEST_PER_S
        while await self._service.anything_queued():
            if time.monotonic() > deadline:
                raise BenchFailed("The queue did not empty.")
            await asyncio.sleep(_POLL_S)
        return time.monotonic()

    async def _mta_is_quiet(self) -> None:
        """Return when the mta processes have loaded and wait for the queue; soon in any case."""
        deadline = time.monotonic() + _START_S
        used = math.inf
        while time.monotonic() < deadline:
            now = self._sample().roles["mta"].cpu_ms
            if now - used < _QUIET_CPU_MS and now >= used:
                return
            used = now
            await asyncio.sleep(_QUIET_S / 2)

    def _all_accepted(self) -> Finding:
        asked, refused = 0, ""
        for _, load in self._loads:
            asked += load.accepted + sum(load.refused.values())
            if load.refused and not refused:
                refused = f"; {load.refused}, first: {load.example}"
        accepted = len(self._accepted)
        return Finding("every message sent was accepted", accepted == asked, f"{accepted} of {asked}{refused}")

    def _latencies(self, sent: tuple[int, Load], arrived: Arrivals) -> dict[str, Any]:
        """Of acceptance, and from the 202 to the sink's 250 (which may come first: then it is below zero)."""
        first, load = sent
        latencies, answers = times_of(load)
        ways = [arrived.at[first + place] - at for place, at in enumerate(answers) if not math.isnan(at)]
        return {"accept_ms": figures.percentiles(latencies), "deliver_ms": figures.percentiles(ways)}

    def _roots(self) -> dict[str, list[int]]:
        return measure.roots_by_role(self._service.pids()) | {"generator": [self._generator.pid]}

    def _sample(self) -> Sample:
        return measure.sample(self._roots())

    def _profiled(self) -> dict[str, int]:
        """One mta process and, unless it has nothing to do, one api worker."""
        if self._folder is None:
            return {}
        pids = self._service.pids()
        targets = {"mta": pids["mta-1"]}
        if self._options.drain is None:
            targets["api"] = measure.tree_of(pids["api"])[-1]
        return targets

    async def _counters(self) -> figures.Series:
        port = self._service.settings.metrics_port
        return figures.parse_metrics(await asyncio.to_thread(_fetched, f"http://127.0.0.1:{port}/metrics"))


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_METRICS_TIMEOUT_S) as answer:  # noqa: S310 - our own service
        return str(answer.read().decode())


def _rate(load: Load, count: int) -> float:
    return round(count / max(load.ended - load.began, 1e-6), 1)


def _kept_logs(service: Service) -> str:
    """Set the logs of a run that failed aside; says where."""
    folder = report.new_folder(ROOT) / "log"
    shutil.copytree(service.settings.state / "log", folder)
    return f"\nThe service's logs: {folder}"


async def _interruptible(work: Any) -> dict[str, Any]:
    """Cancel `work` at the first signal, so that everything it started is stopped; more signals change nothing."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return dict(await task)


@contextlib.contextmanager
def _turn(tell: Tell) -> Iterator[None]:
    """One bench at a time on a machine: two would measure each other. Waits for its turn."""
    path = Path(tempfile.gettempdir()) / "waybill-bench.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError:  # somebody else's file: then there is nobody to wait for that we could see
        yield
        return
    with os.fdopen(descriptor, "r+") as lock:
        waiting = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    tell("Another bench runs on this machine; waiting for its end")
                waiting = True
                time.sleep(_TURN_POLL_S)
        yield
