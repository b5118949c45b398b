"""`ops bench --alerts N`: the CPU of measuring N alert rules once, and of a measurement with which many fire.

The rules are of all kinds alike, on accounts with outcomes in every quarter of an hour; half of them look at 30 days.
The bench measures them itself, as a worker does: its own CPU and that of PostgreSQL count.
"""

import os
import time
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from engine.accounts.alerts.measure import measure_due
from engine.accounts.alerts.types import MAX_WINDOW_DAYS, AlertKind
from engine.accounts.suspend import WINDOW
from engine.base import clock, ids, settings
from engine.sending.statistics.rules import quarter_of
from engine.store.queries import Queries
from loadtests.bench import measure, report
from loadtests.bench.one_result import run_measurement
from loadtests.bench.service import BenchService, own_service

ROUNDS: Final = 5
FIRING: Final = 200  # accounts whose records drift at once
MARK_S: Final = 2.0  # of CPU for 10,000 rules
_CHUNK: Final = 500
_STEP: Final = timedelta(seconds=61)

_SQL = Queries.beside(__file__, "alerts.sql")
_STORE = _SQL.command("store_accounts")
_RULES = _SQL.command("store_rules")
_CROSS = _SQL.command("cross")
_VACUUM = _SQL.command("vacuum_rules")


def run(*, rules: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 if every round measured all rules within the mark."""
    return run_measurement(lambda progress: _measure(rules, progress), as_json=as_json)


async def _measure(rules: int, progress: report.Progress) -> dict[str, Any]:
    given = msgspec.structs.replace(settings.load(os.environ).settings, processes=("api",), api_workers=1)
    async with own_service(given, progress.say, delivering=True, tls=False) as service:
        accounts = list(ids.uuid7s(max(1, rules // len(AlertKind))))
        at = clock.now()
        progress.say(f"Storing {len(accounts):,} accounts with {len(AlertKind)} rules each")
        await _store(service, accounts, at)
        rounds = [await _round(service, at + number * _STEP) for number in range(ROUNDS)]
        await _CROSS.execute(service.pool, accounts[:FIRING])
        firing = await _round(service, at + ROUNDS * _STEP)
    steady = sorted(one["cpuSeconds"] for one in rounds[1:])
    wanted = len(accounts) * len(AlertKind)
    return {
        "mode": "alerts",
        "rules": wanted,
        "cpuSeconds": steady[len(steady) // 2],
        "markSeconds": round(MARK_S * wanted / 10_000, 3),
        "rounds": rounds,
        "firing": firing,
        "checked": all(one["measured"] == wanted for one in (*rounds, firing))
        and firing["fired"] == min(FIRING, len(accounts))
        and steady[len(steady) // 2] <= MARK_S * wanted / 10_000,
    }


async def _round(service: BenchService, at: datetime) -> dict[str, Any]:
    """Measure all rules once."""
    roots = {role: pids for role, pids in measure.roots_by_role(service.pids()).items() if role == "postgres"}
    before, own, began = measure.sample(roots), time.process_time(), time.monotonic()
    done = (await measure_due(service.pool, service.settings, at)).values()
    took, own_s = time.monotonic() - began, time.process_time() - own
    postgres_ms = measure.sample(roots).roles["postgres"].cpu_ms - before.roles["postgres"].cpu_ms
    return {
        "measured": sum(one.measured for one in done),
        "fired": sum(one.fired for one in done),
        "cpuSeconds": round(own_s + postgres_ms / 1000, 3),
        "workerSeconds": round(own_s, 3),
        "postgresSeconds": round(postgres_ms / 1000, 3),
        "tookSeconds": round(took, 3),
    }


async def _store(service: BenchService, accounts: list[UUID], at: datetime) -> None:
    for start in range(0, len(accounts), _CHUNK):
        chunk = accounts[start : start + _CHUNK]
        await _STORE.execute(service.pool, chunk, quarter_of(at - WINDOW), at.date())
        await _RULES.execute(service.pool, chunk, MAX_WINDOW_DAYS)
    async with service.pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute(_VACUUM.sql, timeout=600)
        await connection.execute("RESET statement_timeout")
