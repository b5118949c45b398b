"""Run a load test: start the service, run Locust, wait for delivery, check the result and write the figures."""

import asyncio
import ipaddress
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from engine.base import settings
from engine.base.plans import Plan
from engine.base.settings import PREFIX
from engine.store.database_errors import DatabaseUnavailable
from loadtests.bench import measure, report
from loadtests.bench.report import Progress, Row, Say
from loadtests.bench.run import BenchRun
from loadtests.bench.run_control import BenchFailed, measured
from loadtests.bench.service import CAP, BenchService, filesystem
from loadtests.bench.yardstick import Yardstick
from loadtests.kit.accounts import open_accounts
from loadtests.kit.check import Check
from loadtests.runner import checks, load_record, setup
from loadtests.runner.catalogue import SCENARIOS, Scenario
from loadtests.runner.load_record import LoadRecord
from loadtests.runner.samples import Sampler
from loadtests.scenarios.load_plan import VARIABLE, LoadPlan, LoadSender
from ops import admin
from ops.host import launch
from ops.host.process_specs import ROOT
from ops.local.sink_store import entries

DRAIN_S: Final = 300.0  # how long the queue may take after the last send
PAGE: Final = "report.html"
_LOCUST_EXTRA_S: Final = 90.0  # for Locust to start, spawn users and stop
_STOP_S: Final = 15.0  # for requests that are open at the end
_SPAWN_PER_S: Final = 200
_POLL_S: Final = 0.5
_QUIET_S: Final = 1.0


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

    @property
    def limits(self) -> dict[str, Any]:
        """Return the fields of the load plan that are options."""
        return {
            "users": self.users, "rate": self.rate, "seconds": self.seconds, "max_messages": self.max_messages,
            "folder": str(self.folder),
        }  # fmt: skip


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
    """Run a load test and write its report; return 0 when every check holds, 1 if not.

    `rate` is in requests per second, `max_messages` in messages. With `url` and `key` the load goes to a running
    service.
    """
    scenario, progress = SCENARIOS[name], Progress()
    try:
        check_target(scenario, url, key)
    except BenchFailed as error:
        progress.fail(str(error))
        return 1
    options = LoadOptions(
        scenario=scenario, seconds=seconds or scenario.seconds, users=users or scenario.users,
        rate=rate or scenario.rate, max_messages=max_messages or scenario.max_messages,
        folder=_folder(name, out), url=url, key=key,
    )  # fmt: skip
    found = measured((_measure if url is None else _measure_running)(options, progress.say), progress)
    text = msgspec.json.format(msgspec.json.encode(found))
    (options.folder / "figures.json").write_bytes(text)
    if as_json:
        print(text.decode())
    else:
        report.show(rows_of(found))
    return 0 if found["checked"] else 1


def check_target(scenario: Scenario, url: str | None, key: str | None) -> None:
    """Raise BenchFailed when the scenario cannot run against this target; only loopback targets are allowed."""
    if not measure.PROC.joinpath("self/stat").exists():
        raise BenchFailed("`ops loadtest` reads /proc, so it needs Linux.")
    if url is None:
        return
    if key is None:
        raise BenchFailed("--url needs an API key of that service: add --key.")
    if scenario.needs_own_service:
        raise BenchFailed(f"{scenario.name} creates its own accounts and servers: run it without --url.")
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        host = "localhost" if ipaddress.ip_address(host).is_loopback else host
    if host != "localhost":
        raise BenchFailed("Load goes to loopback only: --url must name 127.0.0.1, ::1 or localhost.")


def _folder(name: str, out: Path | None) -> Path:
    """Create the report folder, by default below `reports`, and delete old CSV files in it."""
    folder = out or ROOT / "reports" / time.strftime(f"loadtest-{name}-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    return folder.resolve()


async def _measure(options: LoadOptions, say: Say) -> dict[str, Any]:
    scenario, given = options.scenario, settings.load(os.environ).settings
    changed = {
        "relay_sessions_each": max(given.relay_sessions_each, options.users + 10),
        "tails_per_worker": max(given.tails_per_worker, scenario.readers + 100),
    }
    async with BenchRun(given, say).service(changed) as service:
        say(f"Making {scenario.accounts:,} accounts")
        accounts = await open_accounts(service.settings, "shop", scenario.accounts, plan=Plan.ENTERPRISE, daily_cap=CAP)
        plan = await setup.make_plan(scenario, service, accounts, **options.limits)
        with setup.hooked(scenario) as hooks:
            roots = measure.roots_by_role(service.pids())
            if hooks is not None:
                roots["receivers"] = [hooks.arrivals.pid]
                await setup.register(scenario, service, accounts, hooks)
            sampler, signature_ms = await _under_load(options, plan, service, roots, hooks, say)
            await asyncio.sleep(_QUIET_S)
            say("Checking that every message is accounted for")
            record = await asyncio.to_thread(lambda: load_record.read(options.folder, entries(service.sink_folder)))
            findings = await checks.check_load(scenario, service, accounts, record, hooks)
        used = sampler.figures(record.accepted)
        state = service.settings.state
        used |= {
            "signature_ms": signature_ms, "machine": measure.machine(state, filesystem(state)),
            "cost_in_signatures": round(used["server_cpu_ms_per_message"] / signature_ms, 2),
        }  # fmt: skip
    sampler.write(options.folder)
    return _figures(options, record, findings, used)


async def _measure_running(options: LoadOptions, say: Say) -> dict[str, Any]:
    """Run the load against a service that already runs; only its API is observed."""
    assert options.url is not None
    assert options.key is not None
    url, key = options.url.rstrip("/"), options.key
    domains = await asyncio.to_thread(admin.call_api, url, "GET", "/v1/domains", key)
    name = next((one["name"] for one in domains["data"] if one["status"] == "verified"), None)
    if name is None:
        raise BenchFailed("The account of --key has no verified domain to send from; verify one first.")
    plan = LoadPlan(url=url, senders=[LoadSender(key, f"loadtest@{name}")], **options.limits)
    async with _locust(options, plan) as process:
        await _ended(process, options, plan, say)
    record = await asyncio.to_thread(load_record.read, options.folder, [])
    lost = record.answers["lost"]
    answered = Check("every request was answered", lost == 0, f"{lost} of {record.answers.total()} were not")
    return _figures(options, record, [answered, await checks.check_logs(url, [key])], {})


async def _under_load(
    options: LoadOptions,
    plan: LoadPlan,
    service: BenchService,
    roots: Mapping[str, list[int]],
    hooks: setup.Hooks | None,
    say: Say,
) -> tuple[Sampler, float]:
    """Run Locust and the sampler, then wait for delivery; return the samples and ms of CPU per RSA-2048 signature."""
    yardstick = Yardstick()
    before = await asyncio.to_thread(yardstick.measure)
    async with _locust(options, plan) as process:
        sampler = Sampler(service.pool, {**roots, "locust": [process.pid]}, options.scenario.slow_domains)
        watching = asyncio.create_task(sampler.run())
        try:
            await _ended(process, options, plan, say)
            say("Waiting until what was accepted is delivered")
            await _drained(service, sampler, hooks)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError, DatabaseUnavailable, TimeoutError):
                await watching
    after = await asyncio.to_thread(yardstick.measure)
    return sampler, round((before.cpu_ms + after.cpu_ms) / 2, 4)


@asynccontextmanager
async def _locust(options: LoadOptions, plan: LoadPlan) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Locust headless, without WAYBILL_ and LOCUST_ variables; the plan file, which holds keys, is deleted
    after."""
    file, total = options.folder / "plan.json", options.users + options.scenario.bystanders
    file.write_bytes(msgspec.json.encode(plan))
    file.chmod(0o600)  # keys
    words = [
        sys.executable, "-m", "locust", "--locustfile", "loadtests/scenarios/locustfile.py", "--headless",
        "--users", str(total), "--spawn-rate", str(min(_SPAWN_PER_S, total)), "--stop-timeout", f"{_STOP_S:g}",
        "--csv", str(options.folder / "locust"), "--csv-full-history", "--html",
        str(options.folder / PAGE), "--only-summary", "--exit-code-on-error", "0", *options.scenario.classes,
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


async def _ended(process: asyncio.subprocess.Process, options: LoadOptions, plan: LoadPlan, say: Say) -> None:
    """Wait for the end of Locust; raises BenchFailed with its log when it fails or takes too long."""
    rate = f"{options.rate:g} requests a second" if options.rate else "as fast as answers come"
    say(f"{options.scenario.about}: {options.users} users, {rate}, {options.seconds:g} s")
    with suppress(TimeoutError):
        async with asyncio.timeout(options.seconds + plan.cool_s + _LOCUST_EXTRA_S):
            if await process.wait() == 0:
                return
    text = (options.folder / "locust.log").read_text("utf-8", "replace")[-2_000:]
    raise BenchFailed(f"Locust failed or did not end in time:\n{text}")


async def _drained(service: BenchService, sampler: Sampler, hooks: setup.Hooks | None) -> None:
    """Wait until no delivery to a healthy domain is pending, at most `DRAIN_S`; the check reports the rest."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        waiting = (await sampler.sample()).healthy
        if hooks is not None:
            waiting += await checks.posts_pending(service, hooks)
        if not waiting:
            return
        await asyncio.sleep(_POLL_S)


def _figures(options: LoadOptions, record: LoadRecord, findings: list[Check], used: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one load test; `used` are those of a separate service."""
    return {
        "scenario": options.scenario.name, "about": options.scenario.about, "users": options.users,
        "rate": options.rate, "service": options.url or "separate", "checked": all(one.ok for one in findings),
        "checks": msgspec.to_builtins(findings), "seconds": round(record.seconds, 1),
        "accepted": record.accepted, "accepted_per_s": round(record.accepted / record.seconds, 1),
        "arrived": record.arrived, "drained_s": round(record.drained_s, 1), "requests": record.requests,
        "deliver_ms": record.deliver_ms, **used, "report": str(options.folder),
    }  # fmt: skip


def rows_of(found: dict[str, Any]) -> list[Row]:
    """Return the figures as people read them."""
    lines = [
        f"{found['accepted']:,} accepted in {found['seconds']:g} s, {found['accepted_per_s']:,.0f} a second",
        f"{found['arrived']:,} arrived, the last {found['drained_s']:g} s after the last answer",
    ]
    if "queue_peak" in found:
        lines += [
            f"queue at most {found['queue_peak']:,}, its oldest {found['oldest_peak_s']:g} s",
            f"server CPU {found['server_cpu_ms_per_message']:.3f} ms a message",
            f"CPU of Locust {found['cpu_ms_by_role']['locust']:.3f} ms a message",
            f"cost in RSA signatures {found['cost_in_signatures']:.2f} of {found['signature_ms']:.3f} ms",
            f"others used {found['cores_used_by_others']:.2f} cores meanwhile",
        ]
    rows: list[Row] = [*((Check(**one).shown,) for one in found["checks"]), (), *((line,) for line in lines)]
    times = [
        (name + (f", failed {one['failed']}" if one["failed"] else ""), f"{one['requests']:,}",
         *(f"{ms:,.0f}" for ms in one["ms"].values()))
        for name, one in found["requests"].items()
    ]  # fmt: skip
    ways = [
        (f"answer to arrival: {group}", *(f"{value:,.1f}" for value in ms.values()))
        for group, ms in found["deliver_ms"].items()
        if ms is not None
    ]
    rows += [(), ("milliseconds", "count", "p50", "p95", "p99", "largest"), *times]
    return [*rows, ("milliseconds", "p50", "p95", "p99"), *ways, (), (f"{found['report']}/{PAGE}",)]
