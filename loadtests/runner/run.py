"""Run a load test: start the service, run Locust, wait for delivery, check the result and write the report."""

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
from loadtests.report import figures, load_record, page, plots, samples
from loadtests.report.load_record import LoadRecord
from loadtests.report.samples import Sampler
from loadtests.runner import checks, setup
from loadtests.runner.bounds import LoadFailed, check_target
from loadtests.runner.catalogue import SCENARIOS, Scenario
from loadtests.users.load_plan import VARIABLE, LoadPlan, LoadSender
from ops import admin
from ops.host import launch
from ops.host.process_specs import ROOT, PortTaken
from ops.host.server_paths import CannotServe
from ops.host.state import UnusableState
from ops.host.supervise import StartFailed
from ops.local.sink_store import entries

DRAIN_S: Final = 300.0  # how long the queue may take after the last send
INTERRUPTED: Final = 130
_LOCUST_EXTRA_S: Final = 90.0  # for Locust to start, spawn users and stop
_STOP_S: Final = 15.0  # for requests that are open at the end
_SPAWN_PER_S: Final = 200
_POLL_S: Final = 0.5
_QUIET_S: Final = 1.0
_PACKAGES = ("granian", "falcon", "uvloop", "asyncpg", "cryptography", "locust", "matplotlib")

Say = Callable[[str], None]


_FAILURES: Final = (
    BadSetting, CannotServe, LoadFailed, PortTaken, StartFailed, UnusableState, admin.ApiCallError, DatabaseUnavailable,
)  # fmt: skip


class LoadOptions(Struct, frozen=True, kw_only=True):
    """The settings of one load test, with the scenario's defaults filled in."""

    scenario: Scenario
    seconds: float
    users: int
    rate: float | None
    max_messages: int
    folder: Path
    url: str | None = None
    key: str | None = None


def run(
    name: str,
    *,
    seconds: float | None = None,
    users: int | None = None,
    rate: float | None = None,
    max_messages: int | None = None,
    out: Path | None = None,
    url: str | None = None,
    key: str | None = None,
    as_json: bool = False,
) -> int:
    """Run a load test and write its report; return 0 when every check holds, 1 if not, 130 after a signal.

    `rate` is in requests per second, `max_messages` in messages. With `url` and `key` the load goes to a running
    service.
    """
    scenario = SCENARIOS[name]
    progress = Progress()
    try:
        check_target(scenario, url, key)
        options = LoadOptions(
            scenario=scenario, seconds=seconds or scenario.seconds, users=users or scenario.users,
            rate=rate or scenario.rate, max_messages=max_messages or scenario.max_messages,
            folder=_folder(name, out), url=url, key=key,
        )  # fmt: skip
        found = asyncio.run(_interruptible(options, progress.say))
    except _FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        progress.fail("Interrupted: no report was written.")
        return INTERRUPTED
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        figures.show(found)
    return 0 if found["checked"] else 1


def _folder(name: str, out: Path | None) -> Path:
    """Create the report folder, by default below `reports`, and delete old CSV files in it."""
    folder = out or ROOT / "reports" / time.strftime(f"loadtest-{name}-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    return folder.resolve()


async def _interruptible(options: LoadOptions, say: Say) -> dict[str, Any]:
    """Run the load test and cancel it at the first signal, so that everything it started is stopped."""
    task = asyncio.ensure_future(_measure(options, say))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _measure(options: LoadOptions, say: Say) -> dict[str, Any]:
    given = settings.load(os.environ).settings
    if options.url is not None:
        return await _measure_running_service(options, say)
    scenario = options.scenario
    say("Starting a separate service")
    async with own_service(
        setup.settings_for(scenario, given, options.users), say, delivering=True, tls=False
    ) as service:
        if scenario.accounts > 1:
            say(f"Making {scenario.accounts:,} accounts")
        accounts = await setup.make_accounts(service, scenario.accounts)
        plan = await setup.make_plan(
            scenario, service, accounts, users=options.users, rate=options.rate, seconds=options.seconds,
            max_messages=options.max_messages, folder=str(options.folder),
        )  # fmt: skip
        async with setup.receiving(scenario, service, accounts) as receivers:
            roots = measure.roots_by_role(service.pids())
            if receivers is not None:
                roots["receivers"] = [receivers.pid]
            sampler = Sampler(service.pool, roots, scenario.slow_domains)
            signatures = await _under_load(options, plan, sampler, say, lambda: _drained(service, sampler, receivers))
            if receivers is not None:
                await asyncio.sleep(_QUIET_S)
            say("Checking that every message is accounted for")
            done = await asyncio.to_thread(lambda: load_record.read(options.folder, entries(service.sink_folder)))
            if receivers is not None:
                done.posted = [at for _, at in await asyncio.to_thread(receivers.arrivals)]
            findings = await checks.check_load(scenario, service, accounts, done, receivers)
        about = await _about(options, service.settings, service)
    return await asyncio.to_thread(_report, options, done, sampler, findings, signatures, about, say)


async def _measure_running_service(options: LoadOptions, say: Say) -> dict[str, Any]:
    """Run the load against a service that already runs; only its API is observed."""
    assert options.url is not None
    assert options.key is not None
    url, key = options.url.rstrip("/"), options.key
    domains = await asyncio.to_thread(admin.call_api, url, "GET", "/v1/domains", key)
    name = next((one["name"] for one in domains["data"] if one["status"] == "verified"), None)
    if name is None:
        raise LoadFailed("The account of --key has no verified domain to send from; verify one first.")
    plan = LoadPlan(
        url=url, senders=[LoadSender(key, f"loadtest@{name}")], folder=str(options.folder), users=options.users,
        rate=options.rate, seconds=options.seconds, max_messages=options.max_messages,
    )  # fmt: skip
    sampler = Sampler(None, {}, ())

    async def nothing() -> None:
        """Do nothing: the queue of a running service is not observed."""

    signatures = await _under_load(options, plan, sampler, say, nothing)
    done = await asyncio.to_thread(load_record.read, options.folder, [])
    lost = sum(one.status.startswith("lost") for one in done.requests)
    proof = await asyncio.to_thread(admin.call_api, url, "GET", "/v1/audit/verify", key)
    findings = [
        CheckResult("every request was answered", lost == 0, f"{lost} of {len(done.requests)} were not"),
        checks.check_chains([proof]),
    ]
    about = await _about(options, None, None)
    return await asyncio.to_thread(_report, options, done, sampler, findings, signatures, about, say)


async def _under_load(
    options: LoadOptions, plan: LoadPlan, sampler: Sampler, say: Say, drained: Callable[[], Any]
) -> list[float]:
    """Run Locust and the sampler, then wait for delivery; return ms of CPU per signature before and after."""
    yardstick = Yardstick()
    before = await asyncio.to_thread(yardstick.measure)
    watching = asyncio.create_task(sampler.run())
    try:
        async with _locust(options, plan) as process:
            sampler.roots["locust"] = [process.pid]
            rate = f"{options.rate:g} requests a second" if options.rate else "as fast as answers come"
            say(f"{options.scenario.about}: {options.users} users, {rate}, {options.seconds:g} s")
            async with asyncio.timeout(options.seconds + plan.cool_s + _LOCUST_EXTRA_S):
                code = await process.wait()
        if code:
            raise LoadFailed(f"Locust ended with {code}:\n{_end_of_log(options.folder)}")
        say("Waiting until what was accepted is delivered")
        await drained()
        await sampler.sample()
    except TimeoutError as error:
        raise LoadFailed(f"Locust did not end in time:\n{_end_of_log(options.folder)}") from error
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError, DatabaseUnavailable, TimeoutError):
            await watching
    after = await asyncio.to_thread(yardstick.measure)
    return [before.cpu_ms, after.cpu_ms]


@asynccontextmanager
async def _locust(options: LoadOptions, plan: LoadPlan) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Locust headless, without WAYBILL_ and LOCUST_ variables; the plan file, which holds keys, is deleted
    after."""
    file = options.folder / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    file.chmod(0o600)  # keys
    total = options.users + options.scenario.bystanders
    words = [
        sys.executable, "-m", "locust", "--locustfile", f"loadtests/scenarios/{options.scenario.file}", "--headless",
        "--users", str(total), "--spawn-rate", str(min(_SPAWN_PER_S, total)), "--stop-timeout", f"{_STOP_S:g}",
        "--run-time", f"{options.seconds + plan.cool_s + _LOCUST_EXTRA_S / 2:.0f}s",
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


async def _drained(service: BenchService, sampler: Sampler, receivers: setup.Receivers | None) -> None:
    """Wait until no delivery to a healthy domain is pending, at most `DRAIN_S`; the check reports the rest."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        moment = await sampler.sample()
        waiting = moment.healthy
        if receivers is not None:
            waiting += await checks.posts_pending(service, receivers)
        if not waiting:
            return
        await asyncio.sleep(_POLL_S)


async def _about(options: LoadOptions, used: Settings | None, service: BenchService | None) -> dict[str, Any]:
    """Return the scenario, settings, versions and machine that the figures belong to."""
    versions = {"waybill": _version("waybill"), "python": platform.python_version()}
    versions |= {name: _version(name) for name in _PACKAGES}
    folder = options.folder
    if service is not None:
        versions["postgres"] = str(await service.pool.fetchval("SHOW server_version")).split(" ")[0]
        folder = service.settings.state
    return {
        "scenario": options.scenario.name,
        "about": options.scenario.about,
        "users": options.users,
        "rate": options.rate,
        "most_messages": options.max_messages,
        "accounts": options.scenario.accounts,
        "tails": options.scenario.readers,
        "service": "separate" if service is not None else options.url,
        "settings": {} if used is None else _changed(used),
        "versions": versions,
        "machine": measure.machine(folder, filesystem(folder)),
    }


def _changed(used: Settings) -> dict[str, str]:
    """Return the settings that differ from their defaults, and the process counts."""
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
    """Write tables, plots, HTML page and JSON to the report folder; return the JSON value."""
    say("Writing the report")
    found = figures.summarize(done, sampler, findings, signatures, about)
    found["report"] = str(options.folder)
    load_record.write_percentiles(done, options.folder)
    samples.write_tables(sampler.moments, options.folder, done.began)
    drawn = plots.draw(done, sampler.moments, options.folder)
    page.write(found, drawn, options.folder)
    (options.folder / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    return found


def _end_of_log(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "locust.log").read_text("utf-8", "replace")[-2_000:]
    return ""
