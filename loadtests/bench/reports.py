"""`ops bench --reports RATE`: the time to the 202 of sends, without and with RATE late bounces a second.

The bounces are genuine: each one is about a delivery of the bench, and turns it `bounced`. Phases take turns: sends
without bounces, sends of the account whose mail bounces, and sends of another account.
"""

import asyncio
import os
import statistics
import time
from datetime import timedelta
from typing import Any, Final

import msgspec

from engine.base import clock, settings
from engine.base.plans import Plan
from engine.mail.return_path import key_of, return_path
from engine.store.queries import Queries
from loadtests.bench import figures, measure, report
from loadtests.bench.load import HTTP_GENERATOR, LoadOrder, LoadProcess, LoadResult, LoadTarget, times_of
from loadtests.bench.one_result import run_measurement
from loadtests.bench.reports_load import BouncedDelivery, ReportsTarget
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import CAP, SENDER, BenchService, own_service
from ops import admin

GENERATOR: Final = "loadtests.bench.reports_load"
OTHER: Final = "other-bench.test"
SENDS_PER_S: Final = 200.0
PHASE_S: Final = 10.0
WITHIN: Final = 2.0
NO_LIMIT: Final = 1024 * 1024 * 1024  # bytes of reports from one network: all bounces come from this host
SENDING: Final = 64  # connections
REPORTING: Final = 16
_PATIENCE_S: Final = 120.0
_POLL_S: Final = 0.2
_EXCUSED: Final = timedelta(days=1)
_SQL = Queries.beside(__file__, "reports.sql")
_DELIVERED = _SQL.command("delivered")
_BOUNCED = _SQL.command("bounced")
_EXCUSE = _SQL.command("excuse")


def run(*, rate: float, runs: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 when all was accepted, every bounce counted, and the mark was met."""
    return run_measurement(
        lambda progress: ReportsBench(rate=rate, runs=runs, progress=progress).measure(), as_json=as_json
    )


class ReportsBench(msgspec.Struct, kw_only=True):
    """A measurement, and the numbers of sends so far."""

    rate: float
    runs: int
    progress: report.Progress
    sent: int = 0

    async def measure(self) -> dict[str, Any]:
        """Send, then send in turns without and with bounces, and count what bounced."""
        given = settings.load(os.environ).settings
        given = msgspec.structs.replace(given, mx_workers=1, mx_unsolicited_bytes_each=NO_LIMIT)
        each = round(self.rate * PHASE_S)
        quiet: list[dict[str, float]] = []
        busy: list[dict[str, float]] = []
        other: list[dict[str, float]] = []
        extra: list[dict[str, float]] = []  # CPU, ms per bounce by role, beyond that of a phase without bounces
        replies: list[dict[str, float]] = []
        async with own_service(given, self.progress.say, delivering=True, tls=False, rsa=True) as service:
            roots = measure.roots_by_role(service.pids())
            log = service.settings.state / "sends.log"
            # All mail of the bench bounces, which suspends an account within a minute.
            await _EXCUSE.execute(service.pool, service.access.account_id, clock.now() + _EXCUSED)
            async with (
                LoadProcess(HTTP_GENERATOR, _sending(service, service.access.key, SENDER), log) as sends,
                LoadProcess(HTTP_GENERATOR, await _other(service), log) as bystander,
            ):
                count = each * self.runs * 2
                self.progress.say(f"Sending {count:,} messages that will bounce")
                await self._send(sends, count, None)
                target = await _target(service, count)
                async with LoadProcess(GENERATOR, target, service.settings.state / "reports.log") as bounces:
                    for number in range(self.runs):
                        self.progress.say(f"Round {number + 1} of {self.runs}")
                        before = measure.sample(roots)
                        quiet.append(await self._paced(sends))
                        between = measure.sample(roots)
                        for place, (sender, found) in enumerate(((sends, busy), (bystander, other))):
                            first = (2 * number + place) * each
                            order = LoadOrder(first=first, count=each, rate=self.rate, timeout_s=_PATIENCE_S)
                            reporting = asyncio.create_task(bounces.send(order))
                            found.append(await self._paced(sender))
                            replies.append(_times(await reporting))
                        idle = figures.usage(before, between, 1)["cpu_ms_by_role"]
                        both = figures.usage(between, measure.sample(roots), 2)["cpu_ms_by_role"]
                        extra.append({role: (ms - idle.get(role, 0.0)) / each for role, ms in both.items()})
                    bounced = await _until_bounced(service, count)
            deaths = service.deaths()
        ratio = _median(busy, "p99") / max(_median(quiet, "p99"), 0.001)
        return {
            "mode": "reports", "reports_per_s": self.rate, "sends_per_s": SENDS_PER_S,
            "accept_ms": _medians(quiet), "accept_ms_with_reports": _medians(busy),
            "p99_ratio": round(ratio, 2), "accept_ms_of_another_account": _medians(other),
            "report_ms": _medians(replies), "cpu_ms_per_report": _medians(extra),
            "reports": count, "bounced": bounced, "deaths": deaths,
            "checked": bounced == count and not deaths and ratio < WITHIN,
        }  # fmt: skip

    async def _paced(self, sends: LoadProcess) -> dict[str, float]:
        return await self._send(sends, round(SENDS_PER_S * PHASE_S), SENDS_PER_S)

    async def _send(self, sends: LoadProcess, count: int, rate: float | None) -> dict[str, float]:
        found = await sends.send(LoadOrder(first=self.sent, count=count, rate=rate, timeout_s=_PATIENCE_S))
        self.sent += count
        return _times(found)


async def _other(service: BenchService) -> LoadTarget:
    """Create another account that sends."""
    made = await admin.create_account(
        service.pool, name="Other", email=f"owner@{OTHER}", plan=Plan.ENTERPRISE, daily_cap=CAP, monthly_cap=CAP
    )
    key = await admin.create_key(
        service.pool, service.settings, account=made["accountId"], name="Other", scopes=["all"]
    )
    await admin.add_domain(service.pool, service.settings, account=made["accountId"], name=OTHER, verified=True)
    return _sending(service, key["apiKey"], f"shop@{OTHER}")


def _sending(service: BenchService, key: str, sender: str) -> LoadTarget:
    return LoadTarget(
        host=service.settings.api_host, port=service.settings.api_port, key=key, sender=sender,
        domains=10, connections=SENDING, folder=str(service.settings.state),
    )  # fmt: skip


async def _target(service: BenchService, count: int) -> ReportsTarget:
    """Wait for the deliveries, and write them to a file for the reporting process."""
    ends = time.monotonic() + _PATIENCE_S
    while await service.anything_queued():
        if time.monotonic() > ends:
            raise BenchFailed("The queue did not empty.")
        await asyncio.sleep(_POLL_S)
    rows = await _DELIVERED.records(service.pool, service.access.account_id, count)
    if len(rows) != count:
        raise BenchFailed(f"{len(rows)} of {count} messages were delivered.")
    config = service.settings
    key, host = key_of(config.pepper), f"bounces.{config.mail_host}"
    found = [BouncedDelivery(return_path(key, row["message_id"], row["n"], host), row["address"]) for row in rows]
    file = config.state / "deliveries.json"
    file.write_bytes(msgspec.json.encode(found))
    return ReportsTarget(
        host="127.0.0.1", port=config.mx_port, deliveries=str(file), connections=REPORTING, folder=str(config.state)
    )


async def _until_bounced(service: BenchService, count: int) -> int:
    """Return how many deliveries have bounced, once all have, or when patience ends."""
    ends = time.monotonic() + _PATIENCE_S
    while True:
        [row] = await _BOUNCED.records(service.pool, service.access.account_id)
        if row["bounced"] >= count or time.monotonic() > ends:
            return int(row["bounced"])
        await asyncio.sleep(_POLL_S)


def _times(load: LoadResult) -> dict[str, float]:
    if load.refused:
        raise BenchFailed(f"Not everything was accepted: {load.refused}\n{load.example}")
    return figures.percentiles(times_of(load)[0]) or {}


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: _median(found, name) for name in found[0]}


def _median(found: list[dict[str, float]], name: str) -> float:
    return round(statistics.median(one[name] for one in found), 2)
