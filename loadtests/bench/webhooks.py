"""`ops bench --webhooks`: the cost of posting an event, and whether hanging endpoints delay others.

Runs its own database with production durability, one worker and a receiver. Measured twice, without and with hanging
endpoints: deliveries per second at full rate with their CPU, and the time from an event's commit to its arrival at a
constant rate.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct
from rich.console import Console

from engine.base import clock, ids
from engine.base.events import EventType
from engine.base.plans import Plan
from engine.base.secrets import Pepper
from engine.base.settings import PREFIX, Settings, to_environ
from engine.events.webhooks import service as webhooks_service
from engine.ledger import log
from engine.ledger.events import append_events
from engine.store.database_errors import DatabaseUnavailable
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from engine.store.queries import Queries
from loadtests.bench import figures, flame_graphs, measure, report
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.webhook_arrivals import PATIENCE_S, WebhookArrivals, receiving
from loadtests.ports import reserve_port
from ops import admin, launch
from ops.embedded import CannotServe, PostgresServer
from ops.process_specs import ROOT

PEPPER: Final = Pepper("a bench's pepper, of no use elsewhere")
ACCOUNTS: Final = 10  # with one living endpoint each
PACE_PER_S: Final = 100
WARM_UP: Final = 1_000
EVENTS_EACH: Final = 400  # of backlog for the hanging ones: more than they get through during the bench
_CAP: Final = 10_000_000
_DETAIL: Final = log.detail_text(
    {"recipient": "ann@people.test", "mx": "mx.people.test", "tls": "TLSv1.3", "attempt": 1, "smtp_code": 250,
     "diagnostic": "2.0.0 Ok: queued as 4XyZ0000", "class": "delivered", "scope": "recipient"}
)  # fmt: skip
_SQL = Queries.beside(__file__, "webhooks.sql")
_PENDING = _SQL.command("count_pending_posts")
_ATTEMPTS = _SQL.command("count_attempts")


class PhaseLengths(Struct, frozen=True):
    """The lengths of the parts of a run, in seconds."""

    idle_s: float = 5.0
    paced_s: float = 12.0
    learning_s: float = 25.0  # two rounds of timeouts, after which every hanging endpoint is recognised


class WebhookBench(Struct, frozen=True):
    """The running processes of the bench."""

    pool: asyncpg.Pool
    roots: dict[str, list[int]]
    arrivals: WebhookArrivals
    folder: Path
    times: PhaseLengths


def run(*, deliveries: int, hanging: int, profile: bool, as_json: bool, times: PhaseLengths = PhaseLengths()) -> int:  # noqa: B008 - frozen
    """Measure and print; return exit status 0 when every event arrived exactly once."""
    progress = report.Progress()
    folder = report.new_folder(ROOT) if profile else None
    try:
        result = asyncio.run(_measure(deliveries, hanging, times, folder, progress))
    except (BenchFailed, CannotServe, flame_graphs.NoProfiler, DatabaseUnavailable, OSError) as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    if folder is not None:
        result["report"] = str(folder)
        report.write_json(result, folder)
    _show(result, as_json=as_json)
    return 0 if result["checked"] else 1


async def _measure(
    deliveries: int, hanging: int, times: PhaseLengths, profile: Path | None, progress: report.Progress
) -> dict[str, Any]:
    with _folder() as folder:
        async with _running(folder, times) as bench:
            accounts = [await _account(bench, f"{number}") for number in range(ACCOUNTS)]
            for account in accounts:
                await _endpoint(bench, account, f"http://127.0.0.1:{bench.arrivals.quick_port}/hook")
            progress.say(f"Warming up with {WARM_UP:,} deliveries")
            sent = await _full_rate(bench, accounts, WARM_UP, None)
            progress.say(f"Measuring {deliveries:,} deliveries alone")
            alone = await _round(bench, accounts, deliveries, profile)
            sent_by_now = sent["events"] + alone.pop("events")
            progress.say(
                f"Adding {hanging} hanging endpoints with {EVENTS_EACH} events each; {times.learning_s:.0f} s to learn"
            )
            dead = await _account(bench, "hanging")
            for _ in range(hanging):
                await _endpoint(bench, dead, f"http://127.0.0.1:{bench.arrivals.never_port}/hook")
            await _write(bench, [dead], EVENTS_EACH)
            await asyncio.sleep(times.learning_s)
            progress.say(f"Measuring {deliveries:,} deliveries beside them")
            beside = await _round(bench, accounts, deliveries, None)
            sent_by_now += beside.pop("events")
            checks = await _checks(bench, accounts, sent_by_now)
            memory, _ = measure.memory_mb(bench.roots)
    return {
        "deliveries": deliveries,
        "hanging": hanging,
        "alone": alone,
        "beside_hanging": beside,
        "worker_mb": round(memory["worker"], 1),
        "checks": checks,
        "checked": all(one["ok"] for one in checks),
    }


async def _round(bench: WebhookBench, accounts: list[UUID], deliveries: int, profile: Path | None) -> dict[str, Any]:
    idle = await _idle(bench)
    paced = await _paced(bench, accounts)
    full = await _full_rate(bench, accounts, deliveries, profile)
    return {
        "delay_ms": paced["delay_ms"],
        "events": paced["events"] + full.pop("events"),
        "idle_cpu_percent": idle,
        **full,
    }


async def _idle(bench: WebhookBench) -> dict[str, float]:
    """Return the CPU in percent of a core while no answering endpoint has a pending post."""
    before = measure.sample(bench.roots)
    await asyncio.sleep(bench.times.idle_s)
    after = measure.sample(bench.roots)
    took_ms = (after.at - before.at) * 1000
    return {
        role: round(100 * (after.roles[role].cpu_ms - before.roles[role].cpu_ms) / took_ms, 1)
        for role in ("worker", "postgres")
    }


async def _paced(bench: WebhookBench, accounts: list[UUID]) -> dict[str, Any]:
    """Write events one by one at a constant rate; return the ms from creation to arrival."""
    before = await bench.arrivals.count()
    events: list[UUID] = []
    began = time.monotonic()
    for number in range(int(PACE_PER_S * bench.times.paced_s)):
        await asyncio.sleep(max(0.0, began + number / PACE_PER_S - time.monotonic()))
        events += await _write(bench, [accounts[number % len(accounts)]], 1)
    await _arrived(bench, before + len(events))
    came = dict(await bench.arrivals.lines())
    delays = [(came[ids.format_id(ids.Kind.EVENT, event)] - ids.milliseconds_of(event)) / 1000 for event in events]
    return {"delay_ms": figures.percentiles(delays), "events": len(events)}


async def _full_rate(
    bench: WebhookBench, accounts: list[UUID], deliveries: int, profile: Path | None
) -> dict[str, Any]:
    """Make all posts due at once; time them from the first arrivals to the last."""
    first = await bench.arrivals.count()
    targets = {"webhooks": bench.roots["worker"][0]} if profile is not None else {}
    async with flame_graphs.FlameRecorders(targets, profile or Path()):
        async with bench.pool.acquire() as connection, connection.transaction():
            each = deliveries // len(accounts)
            for account in accounts:
                await _append(connection, account, each)
            before = measure.sample(bench.roots)
        count = each * len(accounts)
        began = await _arrived(bench, first + max(1, count // 50))
        at_first = await bench.arrivals.count()
        await _arrived(bench, first + count)
        took_s = time.monotonic() - began
        await _posted(bench, accounts)
        after = measure.sample(bench.roots)
    cpu = {role: after.roles[role].cpu_ms - before.roles[role].cpu_ms for role in ("worker", "postgres")}
    return {
        "per_s": round((first + count - at_first) / took_s),
        "per_worker_core_s": round(count / cpu["worker"] * 1000),
        "worker_us": round(1000 * cpu["worker"] / count),
        "postgres_us": round(1000 * cpu["postgres"] / count),
        "events": count,
    }


async def _checks(bench: WebhookBench, accounts: list[UUID], sent: int) -> list[dict[str, Any]]:
    came = Counter(name for name, _ in await bench.arrivals.lines())
    twice = sum(1 for count in came.values() if count > 1)
    made = (await _ATTEMPTS.records(bench.pool, accounts))[0]
    left = (await _PENDING.records(bench.pool, accounts))[0]["pending"]
    return [
        {
            "what": "every event arrived once",
            "ok": len(came) == sent and not twice,
            "found": f"{sent} sent, {len(came)} arrived, {twice} twice",
        },
        {
            "what": "every attempt is recorded",
            "ok": made["made"] == made["first"] == sent,
            "found": f"{made['made']} recorded, {made['first']} of them first ones",
        },
        {"what": "no post is pending", "ok": left == 0, "found": f"{left}"},
    ]


# -- what is posted -------------------------------------------------------------------------------


async def _account(bench: WebhookBench, name: str) -> UUID:
    made = await admin.create_account(
        bench.pool, name=f"Bench {name}", email=f"{name}@bench.test", plan=Plan.ENTERPRISE, daily_cap=_CAP,
        monthly_cap=_CAP,
    )  # fmt: skip
    return ids.parse_id(ids.Kind.ACCOUNT, made["accountId"])


async def _endpoint(bench: WebhookBench, account: UUID, url: str) -> None:
    await webhooks_service.create(bench.pool, account, url=url, event_types=(), pepper=PEPPER)


async def _write(bench: WebhookBench, accounts: list[UUID], each: int) -> list[UUID]:
    written = []
    for account in accounts:
        async with bench.pool.acquire() as connection, connection.transaction():
            written += await _append(connection, account, each)
    return written


async def _append(connection: Any, account: UUID, count: int) -> list[UUID]:
    """Append `count` events to the account's log, as the service does."""
    message = ids.uuid7()
    public = ids.format_id(ids.Kind.MESSAGE, message)
    entries = [log.Entry(account, EventType.DELIVERED, _DETAIL, clock.now(), message, public) for _ in range(count)]
    return [row.id for row in await append_events(connection, entries)]


async def _posted(bench: WebhookBench, accounts: list[UUID]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (await _PENDING.records(bench.pool, accounts))[0]["pending"]:
        if time.monotonic() > deadline:
            raise BenchFailed("The posts were not recorded in time.")
        await asyncio.sleep(0.05)


async def _arrived(bench: WebhookBench, count: int) -> float:
    """Wait until `count` posts have arrived; return the monotonic time."""
    try:
        return await bench.arrivals.wait_for(count)
    except BenchFailed as failed:
        raise BenchFailed(f"{failed}\n{_end_of_log(bench.folder)}") from None


# -- what runs ------------------------------------------------------------------------------------


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="waybill-bench-", dir="/var/tmp"))
    folder.chmod(0o711)  # the database's user passes through
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _running(folder: Path, times: PhaseLengths) -> AsyncIterator[WebhookBench]:
    """Start all processes and stop them at the end."""
    postgres = PostgresServer(folder)
    postgres.start()
    worker: subprocess.Popen[bytes] | None = None
    try:
        await migrate(postgres.url)
        settings = Settings(state=folder, database_url=postgres.url, key_pepper=PEPPER, metrics_port=reserve_port())
        with (folder / "worker.log").open("wb") as output:
            worker = _started(["ops.processes.worker"], to_environ(settings), output)
        pool = await open_pool(postgres.url, name="bench", largest=4)
        assert postgres.pid is not None
        roots = {"worker": [worker.pid], "postgres": [postgres.pid]}
        with receiving() as arrivals:
            yield WebhookBench(pool, roots, arrivals, folder, times)
        await pool.close()
    finally:
        if worker is not None:
            worker.kill()
            worker.wait()
        postgres.stop(5.0)
        shutil.rmtree(postgres.paths.base, ignore_errors=True)


def _started(words: list[str], settings: dict[str, str], output: Any) -> "subprocess.Popen[bytes]":
    environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    return subprocess.Popen(
        launch.command([sys.executable, "-m", *words]),
        env=environ | settings, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def _end_of_log(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return (folder / "worker.log").read_text("utf-8", "replace")[-2_000:]
    return ""


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    console = Console(highlight=False, emoji=False, soft_wrap=True, markup=False)
    for one in result["checks"]:
        console.print(f"{'ok  ' if one['ok'] else 'BAD '} {one['what']}: {one['found']}")
    for name, words in (("alone", "alone"), ("beside_hanging", f"beside {result['hanging']} hanging endpoints")):
        found = result[name]
        delay = found["delay_ms"]
        console.print(
            f"{words}: {found['per_s']:,} deliveries/s, {found['per_worker_core_s']:,} per second of worker CPU "
            f"({found['worker_us']} µs; PostgreSQL {found['postgres_us']} µs); at {PACE_PER_S}/s from the event to its "
            f"arrival p50 {delay['p50']:.0f}, p95 {delay['p95']:.0f}, p99 {delay['p99']:.0f} ms; idle: worker "
            f"{found['idle_cpu_percent']['worker']} %, PostgreSQL {found['idle_cpu_percent']['postgres']} % of a core"
        )
    console.print(f"worker: {result['worker_mb']} MiB")
