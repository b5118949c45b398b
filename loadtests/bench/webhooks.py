"""`ops bench webhooks`: the cost of posting an event, and whether hanging endpoints delay others.

The service runs one worker. Measured twice, without and with hanging endpoints: deliveries per second at full rate with
their CPU, and the time from an event's commit to its arrival at a constant rate.
"""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from msgspec import Struct, to_builtins

from engine.base import clock, ids
from engine.base.events import EventType
from engine.base.plans import Plan
from engine.events.webhooks import service as webhooks_service
from engine.ledger import log
from engine.ledger.events import append_events
from engine.store.queries import Queries
from loadtests.bench import figures, flame_graphs, measure
from loadtests.bench.report import Row
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import CAP, BenchService
from loadtests.bench.webhook_arrivals import PATIENCE_S, WebhookArrivals, receiving
from loadtests.kit.check import Check
from ops import admin

ACCOUNTS: Final = 10  # with one living endpoint each
PACE_PER_S: Final = 100
WARM_UP: Final = 1_000
EVENTS_EACH: Final = 400  # of backlog for the hanging ones: more than they get through during the bench
_DETAIL: Final = log.detail_text(
    {"recipient": "ann@people.test", "mx": "mx.people.test", "tls": "TLSv1.3", "attempt": 1, "smtp_code": 250,
     "diagnostic": "2.0.0 Ok: queued as 4XyZ0000", "class": "delivered", "scope": "recipient"}
)  # fmt: skip
_SQL = Queries.beside(__file__, "webhooks.sql")
_PENDING = _SQL.command("count_pending_posts")
_ATTEMPTS = _SQL.command("count_attempts")


class WebhookBench(Struct, frozen=True, kw_only=True):
    """The options of the bench, and the lengths of its parts in seconds."""

    messages: int = 20_000  # posts
    hanging: int = 500
    profile: bool = False
    idle_s: float = 5.0
    paced_s: float = 12.0
    learning_s: float = 25.0  # two rounds of timeouts, after which every hanging endpoint is recognised

    async def measure(self, run: BenchRun) -> BenchResult:
        """Measure posts alone and beside hanging endpoints."""
        async with run.service({"processes": ("worker",)}) as service:
            with receiving() as arrivals:
                posts = EventPosts(self, run, service, arrivals)
                await posts.prepare()
                run.say(f"Measuring {self.messages:,} deliveries alone")
                alone = await posts.measure(run.folder)
                run.say(f"Adding {self.hanging} hanging endpoints with {EVENTS_EACH} events each")
                await posts.hang(self.hanging)
                run.say(f"Measuring {self.messages:,} deliveries beside them")
                beside = await posts.measure(None)
                checks = await posts.checks()
                memory, _ = measure.memory_mb(posts.roots)
        found = {
            "deliveries": self.messages, "hanging": self.hanging, "alone": alone, "beside_hanging": beside,
            "worker_mb": round(memory["worker"], 1), "checks": to_builtins(checks),
            "checked": all(one.ok for one in checks),
        }  # fmt: skip
        titles = {"alone": alone, f"beside {self.hanging} hanging endpoints": beside}
        rows: list[Row] = [row for title, one in titles.items() for row in (*_rows(title, one), ())]
        return BenchResult(found, [*rows, (f"worker: {found['worker_mb']} MiB",), *((one.shown,) for one in checks)])


class EventPosts:
    """Writes events to the logs of accounts and follows their posts."""

    def __init__(self, bench: WebhookBench, run: BenchRun, service: BenchService, arrivals: WebhookArrivals) -> None:
        self._bench = bench
        self._say = run.say
        self._service = service
        self._pool = service.pool
        self._arrivals = arrivals
        self._accounts: list[UUID] = []
        self._sent = 0
        roots = measure.roots_by_role(service.pids())
        self.roots = {role: roots[role] for role in ("worker", "postgres")}

    async def prepare(self) -> None:
        """Make accounts with an endpoint each, and warm up."""
        for number in range(ACCOUNTS):
            self._accounts.append(await self._account(f"{number}", [self._arrivals.quick_url]))
        self._say(f"Warming up with {WARM_UP:,} deliveries")
        await self._full_rate(WARM_UP, None)

    async def measure(self, profile: Path | None) -> dict[str, Any]:
        """Measure idle, at a constant rate and at full rate."""
        idle = await measure.percent_of_core(self.roots, asyncio.sleep(self._bench.idle_s))
        delays = await self._paced()
        full = await self._full_rate(self._bench.messages, profile)
        return {"delay_ms": delays, "idle_cpu_percent": idle, **full}

    async def hang(self, endpoints: int) -> None:
        """Add endpoints that never answer, with events for them, and wait until the worker has recognised them."""
        dead = await self._account("hanging", [self._arrivals.never_url] * endpoints)
        await self._write(dead, EVENTS_EACH)
        await asyncio.sleep(self._bench.learning_s)

    async def checks(self) -> list[Check]:
        """Compare events, arrivals and recorded attempts."""
        came = Counter(name for name, _ in await self._arrivals.lines())
        twice = sum(1 for count in came.values() if count > 1)
        [made] = await _ATTEMPTS.records(self._pool, self._accounts)
        left, deaths, sent = await self._pending(), self._service.deaths(), self._sent
        return [
            Check(
                "every event arrived once", len(came) == sent and not twice,
                f"{sent} sent, {len(came)} arrived, {twice} twice",
            ),
            Check(
                "every attempt is recorded", made["made"] == made["first"] == sent,
                f"{made['made']} recorded, {made['first']} of them first ones",
            ),
            Check("no post is pending", left == 0, f"{left}"),
            Check("no process died", not deaths, f"{deaths or 'none'}"),
        ]  # fmt: skip

    async def _paced(self) -> dict[str, float] | None:
        """Write events one by one at a constant rate; return the ms from creation to arrival."""
        before = await self._arrivals.count()
        events: list[UUID] = []
        began = time.monotonic()
        for number in range(int(PACE_PER_S * self._bench.paced_s)):
            await asyncio.sleep(max(0.0, began + number / PACE_PER_S - time.monotonic()))
            events += await self._write(self._accounts[number % ACCOUNTS], 1)
        await self._arrivals.wait_for(before + len(events))
        self._sent += len(events)
        came = dict(await self._arrivals.lines())
        return figures.percentiles(
            (came[ids.format_id(ids.Kind.EVENT, event)] - ids.milliseconds_of(event)) / 1000 for event in events
        )

    async def _full_rate(self, deliveries: int, profile: Path | None) -> dict[str, Any]:
        """Make all posts due at once; time them from the first arrivals to the last."""
        first = await self._arrivals.count()
        targets = {"webhooks": self.roots["worker"][0]} if profile is not None else {}
        each = deliveries // ACCOUNTS
        count = each * ACCOUNTS
        async with flame_graphs.FlameRecorders(targets, profile or Path()):
            async with self._pool.acquire() as connection, connection.transaction():
                for account in self._accounts:
                    await _append(connection, account, each)
                before = measure.sample(self.roots)
            began = await self._arrivals.wait_for(first + max(1, count // 50))
            at_first = await self._arrivals.count()
            took_s = await self._arrivals.wait_for(first + count) - began
            await self._recorded()
            after = measure.sample(self.roots)
        self._sent += count
        cpu = {role: after.roles[role].cpu_ms - before.roles[role].cpu_ms for role in self.roots}
        return {
            "per_s": round((first + count - at_first) / took_s),
            "per_worker_core_s": round(count / cpu["worker"] * 1000),
            "worker_us": round(1000 * cpu["worker"] / count),
            "postgres_us": round(1000 * cpu["postgres"] / count),
        }

    async def _account(self, name: str, urls: list[str]) -> UUID:
        """Make an account with endpoints."""
        made = await admin.create_account(
            self._pool, name=f"Bench {name}", email=f"{name}@bench.test", plan=Plan.ENTERPRISE, daily_cap=CAP,
            monthly_cap=CAP,
        )  # fmt: skip
        account, pepper = ids.parse_id(ids.Kind.ACCOUNT, made["accountId"]), self._service.settings.pepper
        for url in urls:
            await webhooks_service.create(self._pool, account, url=url, event_types=(), pepper=pepper)
        return account

    async def _write(self, account: UUID, count: int) -> list[UUID]:
        async with self._pool.acquire() as connection, connection.transaction():
            return await _append(connection, account, count)

    async def _recorded(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while await self._pending():
            if time.monotonic() > deadline:
                raise BenchFailed("The posts were not recorded in time.")
            await asyncio.sleep(0.05)

    async def _pending(self) -> int:
        [row] = await _PENDING.records(self._pool, self._accounts)
        return int(row["pending"])


async def _append(connection: Any, account: UUID, count: int) -> list[UUID]:
    """Append `count` events to the account's log, as the service does."""
    message = ids.uuid7()
    public = ids.format_id(ids.Kind.MESSAGE, message)
    entries = [log.Entry(account, EventType.DELIVERED, _DETAIL, clock.now(), message, public) for _ in range(count)]
    return [row.id for row in await append_events(connection, entries)]


def _rows(title: str, found: dict[str, Any]) -> list[Row]:
    idle = found["idle_cpu_percent"]
    return [
        (title,),
        ("deliveries a second", f"{found['per_s']:,}"),
        ("… per second of worker CPU", f"{found['per_worker_core_s']:,}"),
        ("CPU, µs a delivery", f"worker {found['worker_us']}, PostgreSQL {found['postgres_us']}"),
        (
            f"from event to arrival at {PACE_PER_S} a second, ms p50 p95 p99",
            " ".join(f"{ms:.0f}" for ms in found["delay_ms"].values()),
        ),
        ("idle CPU, % of a core", f"worker {idle['worker']}, PostgreSQL {idle['postgres']}"),
    ]
