"""`ops bench tails`: the cost of open live tails for the API, idle and with events.

Readers only read; the bench appends the events itself, evenly over the accounts.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct

from engine.base import clock, ids
from engine.base.events import EventType
from engine.base.plans import Plan
from engine.events.tails.store import MAX_TAILS
from engine.ledger import log
from engine.ledger.events import append_events
from engine.store.queries import Queries
from loadtests.bench import figures, measure
from loadtests.bench.report import in_words
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.service import CAP, BenchService, ServiceKind
from loadtests.kit.accounts import ApiAccess, open_accounts

SETTLE_S: Final = 3.0
PER_S: Final = 100
_MAX_LINE: Final = 1024 * 1024
_OPENED_S: Final = 60.0

_SQL = Queries.beside(__file__, "tails.sql")
_MESSAGES = _SQL.command("make_messages")
_RECIPIENTS = _SQL.command("make_recipients")


class TailReadings(Struct):
    """The events that all readers received."""

    events: int = 0
    delays_s: list[float] = []
    ended: int = 0


class TailedAccount(Struct, frozen=True):
    """An account whose log is tailed, and the message whose events its tails show."""

    access: ApiAccess
    message: UUID


class TailBench(Struct, frozen=True, kw_only=True):
    """The options of the bench, and the lengths of its parts in seconds."""

    tails: int = 1_000
    quiet_s: float = 10.0
    busy_s: float = 15.0

    async def measure(self, run: BenchRun) -> BenchResult:
        """Open all tails, measure them idle and with events, and count what each of them received."""
        tails, count = self.tails, -(-self.tails // MAX_TAILS)
        async with run.service(kind=ServiceKind(delivering=False)) as service:
            run.say(f"Making {count:,} accounts")
            accounts = await _make_accounts(service, count)
            pids = measure.roots_by_role(service.pids())
            roots = {role: pids[role] for role in ("api", "postgres")}
            before, _ = measure.memory_mb(roots)
            reading = TailReadings()
            run.say(f"Opening {tails:,} tails")
            async with _open_tails(service, accounts, tails, reading):
                await asyncio.sleep(SETTLE_S)
                quiet = await measure.percent_of_core(roots, asyncio.sleep(self.quiet_s))
                run.say(f"Writing {PER_S} events a second")
                busy = await measure.percent_of_core(roots, _write(service.pool, accounts, self.busy_s))
                await asyncio.sleep(SETTLE_S)
                after, kind = measure.memory_mb(roots)
                open_at_end = tails - reading.ended
        written = round(PER_S * self.busy_s)
        expected = sum(_tails_of(number % count, tails) for number in range(written))
        found = {
            "tails": tails, "accounts": count, "api_workers": run.given.api_workers, "idle_cpu_percent": quiet,
            "busy_cpu_percent": busy, "events_per_s": PER_S, "delivered": reading.events, "expected": expected,
            "delay_ms": figures.percentiles(reading.delays_s),
            "api_mb": {"without": round(before["api"], 1), "with": round(after["api"], 1), "kind": kind},
            "kb_per_tail": round((after["api"] - before["api"]) * 1024 / tails, 1), "open_at_end": open_at_end,
            "checked": reading.events == expected and open_at_end == tails,
        }  # fmt: skip
        return BenchResult(found, [(name, in_words(value)) for name, value in found.items()])


def _tails_of(account: int, tails: int) -> int:
    """Return the number of tails of account number `account`."""
    return min(MAX_TAILS, tails - MAX_TAILS * account)


async def _make_accounts(service: BenchService, count: int) -> list[TailedAccount]:
    opened = await open_accounts(service.settings, "tailed", count, plan=Plan.ENTERPRISE, daily_cap=CAP)
    made = [TailedAccount(access, ids.uuid7()) for access in opened]
    columns = [account.message for account in made], [account.access.account_id for account in made]
    await _MESSAGES.execute(service.pool, *columns)
    await _RECIPIENTS.execute(service.pool, *columns)
    return made


@asynccontextmanager
async def _open_tails(
    service: BenchService, accounts: Sequence[TailedAccount], tails: int, reading: TailReadings
) -> AsyncIterator[None]:
    """Open all tails and close them at the end."""
    ready = asyncio.Semaphore(0)
    tasks = [
        asyncio.create_task(_read(service, account.access.key, reading, ready))
        for number, account in enumerate(accounts)
        for _ in range(_tails_of(number, tails))
    ]
    try:
        async with asyncio.timeout(_OPENED_S):
            for _ in tasks:
                await ready.acquire()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(service: BenchService, key: str, reading: TailReadings, ready: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(
        service.settings.api_host, service.settings.api_port, limit=_MAX_LINE
    )
    try:
        writer.write(
            b"GET /v1/messages/tail?replay=0 HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n\r\n" % key.encode()
        )
        kind = b""
        while line := await reader.readline():
            if line.startswith(b"event: "):
                kind = line[7:-1]
                if kind == b"ready":
                    ready.release()
            elif line.startswith(b"data: ") and kind == b"message":
                reading.events += 1
                reading.delays_s.append(time.time() - orjson.loads(line[6:])["detail"]["at"])
        reading.ended += 1
    finally:
        writer.close()


async def _write(pool: asyncpg.Pool, accounts: Sequence[TailedAccount], seconds: float) -> None:
    """Append events one by one at a constant rate, each for the account's message."""
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        connection = await stack.enter_async_context(pool.acquire())
        for number in range(round(PER_S * seconds)):
            await asyncio.sleep(max(0.0, began + number / PER_S - time.monotonic()))
            account = accounts[number % len(accounts)]
            detail = log.detail_text({"at": time.time(), "recipient": "ann@people.test", "diagnostic": "x" * 200})
            public = ids.format_id(ids.Kind.MESSAGE, account.message)
            entry = log.Entry(
                account.access.account_id, EventType.DEFERRED, detail, clock.now(), account.message, public
            )
            async with connection.transaction():
                await append_events(connection, [entry])
