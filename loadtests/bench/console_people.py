"""`ops bench --console-people`: the time of accepting a message while people have the console open.

Each person has the page of messages open, as it is in a visible tab: one live tail, and the hourly figures read again
every 10 s. The people belong to accounts of their own; another account sends at a steady rate, in turns without and
with them.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from statistics import median
from typing import Any, Final

import msgspec

from engine.base import clock, settings
from engine.events.tails.store import MAX_TAILS
from loadtests.bench import figures, measure, report
from loadtests.bench.load import HTTP_GENERATOR, LoadOrder, LoadProcess, LoadTarget, times_of
from loadtests.bench.one_result import run_measurement
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import SENDER, BenchService, own_service
from loadtests.bench.tails import TailedAccount, TailReadings, make_accounts, open_tails

POLL_S: Final = 10.0  # POLL_MS of the console
POLLERS: Final = 16
SENDS_PER_S: Final = 200.0
PHASE_S: Final = 15.0
ROUNDS: Final = 3
SETTLE_S: Final = 2.0
WITHIN: Final = 1.3  # the p99 beside the people by the p99 without them
_PATIENCE_S: Final = 60.0


def run(*, people: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 when the p99 stays within the mark."""
    return run_measurement(lambda progress: _measure(people, progress), as_json=as_json)


async def _measure(people: int, progress: report.Progress) -> dict[str, Any]:
    given = msgspec.structs.replace(settings.load(os.environ).settings, request_rate=1_000_000)
    alone: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    cpu: list[dict[str, float]] = []
    reading, polls = TailReadings(), PollCount()
    async with own_service(given, progress.say, delivering=False, tls=False) as service:
        progress.say(f"Making {-(-people // MAX_TAILS):,} accounts")
        accounts = await make_accounts(service, -(-people // MAX_TAILS))
        roots = {
            role: pids for role, pids in measure.roots_by_role(service.pids()).items() if role in ("api", "postgres")
        }
        async with LoadProcess(HTTP_GENERATOR, _sending(service), service.settings.state / "sends.log") as sends:
            await _phase(sends)  # warms up
            for number in range(ROUNDS):
                progress.say(f"Round {number + 1} of {ROUNDS}")
                alone.append(await _phase(sends))
                async with open_tails(service, accounts, people, reading), _polling(service, accounts, people, polls):
                    await asyncio.sleep(SETTLE_S)
                    before = measure.sample(roots)
                    beside.append(await _phase(sends))
                    cpu.append(_cores(before, measure.sample(roots)))
        deaths = service.deaths()
    ratio = _median(beside, "p99") / max(_median(alone, "p99"), 0.001)
    return {
        "mode": "console people", "people": people, "sends_per_s": SENDS_PER_S,
        "accept_ms": _medians(alone), "accept_ms_with_people": _medians(beside), "p99_ratio": round(ratio, 2),
        "cpu_percent_with_people": _medians(cpu), "polls": polls.answered, "polls_refused": polls.refused,
        "tails_ended": reading.ended, "deaths": deaths,
        "checked": ratio < WITHIN and not polls.refused and not reading.ended and not deaths,
    }  # fmt: skip


def _sending(service: BenchService) -> LoadTarget:
    return LoadTarget(
        host=service.settings.api_host, port=service.settings.api_port, key=service.access.key, sender=SENDER,
        domains=10, connections=8, folder=str(service.settings.state),
    )  # fmt: skip


async def _phase(sends: LoadProcess) -> dict[str, float]:
    """Send at the steady rate and return the percentiles of the answers in ms."""
    count = round(SENDS_PER_S * PHASE_S)
    result = await sends.send(LoadOrder(first=0, count=count, rate=SENDS_PER_S, timeout_s=_PATIENCE_S))
    if result.accepted != count:
        raise BenchFailed(f"{result.accepted} of {count} messages were accepted: {result.example}")
    found = figures.percentiles(times_of(result)[0])
    assert found is not None
    return found


class PollCount(msgspec.Struct):
    """The answers to the polls of all people."""

    answered: int = 0
    refused: int = 0


@asynccontextmanager
async def _polling(
    service: BenchService, accounts: Sequence[TailedAccount], people: int, polls: PollCount
) -> AsyncIterator[None]:
    """Read the figures of the list for each person every POLL_S, evenly spread."""
    tasks = [
        asyncio.create_task(_poll(service, accounts[number::POLLERS] or accounts, POLL_S * POLLERS / people, polls))
        for number in range(min(POLLERS, people))
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _poll(service: BenchService, accounts: Sequence[TailedAccount], every_s: float, polls: PollCount) -> None:
    """Poll for one account after another over one connection."""
    reader, writer = await asyncio.open_connection(service.settings.api_host, service.settings.api_port)
    since = (clock.now() - timedelta(hours=24)).strftime("%Y-%m-%dT%H:00:00Z")
    path = f"/v1/stats/messages?bucket=hour&from={since}"
    loop = asyncio.get_running_loop()
    due, number = loop.time(), 0
    try:
        while True:
            due += every_s
            await asyncio.sleep(due - loop.time())
            key = accounts[number % len(accounts)].key
            number += 1
            writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
            await reader.readexactly(int(size.partition(b":")[2]))
            polls.answered += 1
            polls.refused += not head.startswith(b"HTTP/1.1 200")
    finally:
        writer.close()


def _cores(before: measure.UsageSample, after: measure.UsageSample) -> dict[str, float]:
    """Return the CPU by role in percent of a core."""
    took_ms = (after.at - before.at) * 1000
    return {role: 100 * (after.roles[role].cpu_ms - before.roles[role].cpu_ms) / took_ms for role in after.roles}


def _median(found: Sequence[dict[str, float]], name: str) -> float:
    return median(one[name] for one in found)


def _medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(_median(found, name), 2) for name in found[0]}
