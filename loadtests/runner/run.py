"""The order of a load test: service, world, Locust in a process of its own, draining, check, report."""

import asyncio
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from engine.base import settings
from engine.base.settings import PREFIX, BadSetting, Settings
from engine.store.database_errors import DatabaseUnavailable
from loadtests.bench import measure
from loadtests.bench.check import CheckResult
from loadtests.bench.report import Progress
from loadtests.bench.service import BenchService, filesystem, own_service
from loadtests.bench.yardstick import Yardstick
from loadtests.report import course, figures, page, plots, samples
from loadtests.report.course import LoadRecord
from loadtests.report.samples import Sampler
from loadtests.runner import own, verdict
from loadtests.runner.bounds import LoadFailed, refuse
from loadtests.runner.catalogue import SCENARIOS, Scenario
from loadtests.users.world import VARIABLE, LoadSender, LoadWorld
from ops import admin, launch
from ops.embedded import CannotServe
from ops.local.sink_store import entries
from ops.process_specs import ROOT, PortTaken
from ops.state import UnusableState
from ops.supervise import StartFailed

DRAIN_S: Final = 300.0  # how long the queue may take after the last send
INTERRUPTED: Final = 130
_LOCUST_EXTRA_S: Final = 90.0  # to start, to spawn and to stop
_STOP_S: Final = 15.0  # for requests that are open at the end
_SPAWN_PER_S: Final = 200
_POLL_S: Final = 0.5
_QUIET_S: Final = 1.0
_TOLD = ("granian", "falcon", "uvloop", "asyncpg", "cryptography", "locust", "matplotlib")

Say = Callable[[str], None]


_FAILURES: Final = (
    BadSetting, CannotServe, LoadFailed, PortTaken, StartFailed, UnusableState, admin.ApiError, DatabaseUnavailable,
)  # fmt: skip


class LoadOptions(Struct, frozen=True, kw_only=True):
    """One load: what is not given is the scenario's own."""

    scenario: Scenario
    seconds: float
    users: int
    rate: float | None
    most: int
    folder: Path
    url: str | None = None
    key: str | None = None


def run(
    name: str,
    *,
    seconds: float | None = None,
    users: int | None = None,
    rate: float | None = None,
    most: int | None = None,
    out: Path | None = None,
    url: str | None = None,
    key: str | None = None,
    as_json: bool = False,
) -> int:
    """Make the load and the report; 0 when every check holds, 1 when one does not, 130 after a signal.

    `rate` is in requests a second, `most` in messages; with `url` and `key` the load goes to a service that runs.
    """
    scenario = SCENARIOS[name]
    voice = Progress()
    try:
        refuse(scenario, url, key)
        options = LoadOptions(
            scenario=scenario, seconds=seconds or scenario.seconds, users=users or scenario.users,
            rate=rate or scenario.rate, most=most or scenario.most, folder=_folder(name, out), url=url, key=key,
        )  # fmt: skip
        found = asyncio.run(_interruptible(options, voice.say))
    except _FAILURES as error:
        voice.fail(str(error) or type(error).__name__)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        voice.fail("Stopped before the end: there is no report.")
        return INTERRUPTED
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        figures.show(found)
    return 0 if found["checked"] else 1


def _folder(name: str, out: Path | None) -> Path:
    """A fresh one under `reports`, or the one that was asked for."""
    folder = out or ROOT / "reports" / time.strftime(f"loadtest-{name}-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    return folder.resolve()


async def _interruptible(options: LoadOptions, say: Say) -> dict[str, Any]:
    """Cancelled at the first signal, so that all that was started is stopped."""
    task = asyncio.ensure_future(_measured(options, say))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _measured(options: LoadOptions, say: Say) -> dict[str, Any]:
    given = settings.load(os.environ).settings
    if options.url is not None:
        return await _elsewhere(options, say)
    scenario = options.scenario
    say("Starting a service of its own")
    async with own_service(
        own.settings_for(scenario, given, options.users), say, delivering=True, tls=False
    ) as service:
        if scenario.accounts > 1:
            say(f"Making {scenario.accounts:,} accounts")
        accounts = await own.make_accounts(service, scenario.accounts)
        world = await own.make_world(
            scenario, service, accounts, users=options.users, rate=options.rate, seconds=options.seconds,
            most=options.most, folder=str(options.folder),
        )  # fmt: skip
        async with own.receiving(scenario, service, accounts) as receivers:
            roots = measure.roots_by_role(service.pids())
            if receivers is not None:
                roots["receivers"] = [receivers.pid]
            sampler = Sampler(service.pool, roots, scenario.ill)
            signatures = await _under_load(options, world, sampler, say, lambda: _drained(service, sampler, receivers))
            if receivers is not None:
                await asyncio.sleep(_QUIET_S)
            say("Checking that every message is accounted for")
            done = await asyncio.to_thread(lambda: course.read(options.folder, entries(service.sink_folder)))
            if receivers is not None:
                done.posted = [at for _, at in await asyncio.to_thread(receivers.arrivals)]
            findings = await verdict.judge(scenario, service, accounts, done, receivers)
        about = await _about(options, service.settings, service)
    return await asyncio.to_thread(_report, options, done, sampler, findings, signatures, about, say)


async def _elsewhere(options: LoadOptions, say: Say) -> dict[str, Any]:
    """Against a service that runs: nothing of it is seen but what its API says."""
    assert options.url is not None
    assert options.key is not None
    url, key = options.url.rstrip("/"), options.key
    domains = await asyncio.to_thread(admin.call_api, url, "GET", "/v1/domains", key)
    name = next((one["name"] for one in domains["data"] if one["status"] == "verified"), None)
    if name is None:
        raise LoadFailed("That account has no verified domain to send from.")
    world = LoadWorld(
        url=url, senders=[LoadSender(key, f"loadtest@{name}")], folder=str(options.folder), users=options.users,
        rate=options.rate, seconds=options.seconds, most=options.most,
    )  # fmt: skip
    sampler = Sampler(None, {}, ())

    async def nothing() -> None:
        """Its queue is its own business."""

    signatures = await _under_load(options, world, sampler, say, nothing)
    done = await asyncio.to_thread(course.read, options.folder, [])
    lost = sum(one.status.startswith("lost") for one in done.requests)
    proof = await asyncio.to_thread(admin.call_api, url, "GET", "/v1/audit/verify", key)
    findings = [
        CheckResult("every request was answered", lost == 0, f"{lost} of {len(done.requests)} were not"),
        verdict.whole([proof]),
    ]
    about = await _about(options, None, None)
    return await asyncio.to_thread(_report, options, done, sampler, findings, signatures, about, say)


async def _under_load(
    options: LoadOptions, world: LoadWorld, sampler: Sampler, say: Say, drained: Callable[[], Any]
) -> list[float]:
    """Locust beside the sampler, then the queue's emptying; gives ms of CPU of a signature before and after."""
    yardstick = Yardstick()
    before = await asyncio.to_thread(yardstick.measure)
    watching = asyncio.create_task(sampler.run())
    try:
        async with _locust(options, world) as process:
            sampler.roots["locust"] = [process.pid]
            rate = f"{options.rate:g} requests a second" if options.rate else "as fast as answers come"
            say(f"{options.scenario.about}: {options.users} users, {rate}, {options.seconds:g} s")
            async with asyncio.timeout(options.seconds + world.cool_s + _LOCUST_EXTRA_S):
                code = await process.wait()
        if code:
            raise LoadFailed(f"Locust ended with {code}:\n{_end_of_log(options.folder)}")
        say("Waiting until what was accepted is delivered")
        await drained()
        await sampler.look()
    except TimeoutError as error:
        raise LoadFailed(f"Locust did not end in time:\n{_end_of_log(options.folder)}") from error
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError, DatabaseUnavailable, TimeoutError):
            await watching
    after = await asyncio.to_thread(yardstick.measure)
    return [before.cpu_ms, after.cpu_ms]


@asynccontextmanager
async def _locust(options: LoadOptions, world: LoadWorld) -> AsyncIterator[asyncio.subprocess.Process]:
    """Headless, without settings of ours in its environment."""
    file = options.folder / "world.json"
    file.write_bytes(msgspec.json.encode(world))
    file.chmod(0o600)  # keys
    total = options.users + options.scenario.bystanders
    words = [
        sys.executable, "-m", "locust", "--locustfile", f"loadtests/scenarios/{options.scenario.file}", "--headless",
        "--users", str(total), "--spawn-rate", str(min(_SPAWN_PER_S, total)), "--stop-timeout", f"{_STOP_S:g}",
        "--run-time", f"{options.seconds + world.cool_s + _LOCUST_EXTRA_S / 2:.0f}s",
        "--csv", str(options.folder / "locust"), "--only-summary", "--exit-code-on-error", "0",
    ]  # fmt: skip
    environ = {name: text for name, text in os.environ.items() if not name.startswith((PREFIX, "LOCUST_"))}
    with (options.folder / "locust.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *launch.command(words), env=environ | {VARIABLE: str(file)}, cwd=ROOT, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        file.unlink(missing_ok=True)


async def _drained(service: BenchService, sampler: Sampler, receivers: own.Receivers | None) -> None:
    """Until nothing waits for servers that are well; what is left after that shows in the check."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        moment = await sampler.look()
        waiting = moment.well
        if receivers is not None:
            waiting += await verdict.posts_pending(service, receivers)
        if not waiting:
            return
        await asyncio.sleep(_POLL_S)


async def _about(options: LoadOptions, used: Settings | None, service: BenchService | None) -> dict[str, Any]:
    """What the figures belong to."""
    versions = {"waybill": _version("waybill"), "python": platform.python_version()}
    versions |= {name: _version(name) for name in _TOLD}
    folder = options.folder
    if service is not None:
        versions["postgres"] = str(await service.pool.fetchval("SHOW server_version")).split(" ")[0]
        folder = service.settings.state
    return {
        "scenario": options.scenario.name,
        "about": options.scenario.about,
        "users": options.users,
        "rate": options.rate,
        "most_messages": options.most,
        "accounts": options.scenario.accounts,
        "tails": options.scenario.readers,
        "service": "its own" if service is not None else options.url,
        "settings": {} if used is None else _changed(used),
        "versions": versions,
        "machine": measure.machine(folder, filesystem(folder)),
    }


def _changed(used: Settings) -> dict[str, str]:
    """What is not the default, and how many processes there are."""
    default = msgspec.structs.asdict(Settings())
    counts = {"api_workers", "mta_workers", "relay_workers", "shards"}
    values = {
        name: value for name, value in msgspec.structs.asdict(used).items()
        if value != default[name] or name in counts
    }  # fmt: skip
    return samples.settings_of(values)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "this checkout"


def _report(
    options: LoadOptions,
    done: LoadRecord,
    sampler: Sampler,
    findings: list[CheckResult],
    signatures: list[float],
    about: dict[str, Any],
    say: Say,
) -> dict[str, Any]:
    """The folder: tables, plots, one page, one JSON value; gives that value."""
    say("Drawing")
    found = figures.summed(done, sampler, findings, signatures, about)
    found["report"] = str(options.folder)
    course.written(done, options.folder)
    samples.keep(sampler.moments, options.folder, done.began)
    drawn = plots.draw(done, sampler.moments, options.folder)
    page.write(found, drawn, options.folder)
    (options.folder / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    return found


def _end_of_log(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "locust.log").read_text("utf-8", "replace")[-2_000:]
    return ""
