"""`ops bench --codes`: times of starting and checking verifications, of codes until they arrive, and of address checks.

Starts come at a fixed rate, each followed by a wrong guess. Then many guesses at once are made at verifications, of
which exactly five may be evaluated. Address checks ask the local DNS responder, at last one that does not answer.
"""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from engine.base import settings
from engine.codes.verifications.rules import MAX_ATTEMPTS
from loadtests.bench import figures, past_broadcasts, report
from loadtests.bench.run_control import FAILURES, machine_lock
from loadtests.bench.service import SENDER, BenchService, own_service
from ops.local.sink_store import entries

RATE: Final = 30.0  # starts per second
GUESSES: Final = 200  # at once
ADDRESSES: Final = 100
CHECK_TIMES: Final = 20
_ARRIVED_S: Final = 60.0
_WARM_UP: Final = 50


def run(*, starts: int, rounds: int, past: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 if every code arrived and exactly five guesses of each round counted.

    `past`: ended broadcasts, and ten thousand times as many verifications, that are stored before.
    """
    progress = report.Progress()
    try:
        with machine_lock(progress.say):
            result = asyncio.run(_measure(starts, rounds, past, progress))
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    _show(result, as_json=as_json)
    return 0 if result["checked"] else 1


async def _measure(starts: int, rounds: int, past: int, progress: report.Progress) -> dict[str, Any]:
    given = msgspec.structs.replace(settings.load(os.environ).settings, processes=("api", "mta", "worker"))
    async with own_service(given, progress.say, delivering=True, tls=False) as service:
        await past_broadcasts.store(service, past)
        base = f"http://{service.settings.api_host}:{service.settings.api_port}"
        headers = {"Authorization": f"Bearer {service.access.key}"}
        connector = aiohttp.TCPConnector(limit=GUESSES)
        async with aiohttp.ClientSession(base, headers=headers, connector=connector, trust_env=False) as client:
            caller = CodeCaller(client)
            await caller.start_many(_WARM_UP, RATE)
            caller = CodeCaller(client)
            progress.say(f"Starting {starts:,} verifications, {RATE:g} a second")
            await caller.start_many(starts, RATE)
            arrived = await _arrivals(service, caller.sent_at)
            progress.say(f"{rounds} rounds of {GUESSES} guesses at once")
            evaluated = Counter([await caller.guess_at_once(number) for number in range(rounds)])
            checks = await _address_checks(service, client, progress)
    return {
        "mode": "codes",
        "starts": starts,
        "past": past,
        "per_s": RATE,
        "ms": {
            "start": figures.percentiles(caller.start_s),
            "check": figures.percentiles(caller.check_s),
            "code at the sink": figures.percentiles(arrived),
            **checks,
        },
        "guesses_evaluated": dict(evaluated),
        "checked": len(arrived) == starts and set(evaluated) <= {MAX_ATTEMPTS},
    }


class CodeCaller:
    """Starts and checks verifications, and keeps the times; lives for one part of the measurement."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client
        self.start_s: list[float] = []
        self.check_s: list[float] = []
        self.sent_at: dict[str, float] = {}  # by address, Unix time
        self._run = f"{time.time_ns():x}"

    async def start_many(self, count: int, rate: float) -> None:
        """Start verifications at a fixed rate, each with one guess after it."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                tasks.create_task(self._start_and_check(f"u{self._run}-{number}@people{number % 10}.test"))

    async def guess_at_once(self, number: int) -> int:
        """Make GUESSES wrong guesses at a new verification at once; return how many were evaluated."""
        made = await self._post("/v1/verifications", {"to": f"g{self._run}-{number}@people.test", "from": SENDER})
        path = f"/v1/verifications/{made[1]['id']}/check"
        answers = await asyncio.gather(*[self._post(path, {"code": "wrong"}) for _ in range(GUESSES)])
        return sum(status == 200 for status, _ in answers)

    async def _start_and_check(self, address: str) -> None:
        self.sent_at[address] = time.time()
        began = time.perf_counter()
        _, made = await self._post("/v1/verifications", {"to": address, "from": SENDER})
        self.start_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        await self._post(f"/v1/verifications/{made['id']}/check", {"code": "wrong"})
        self.check_s.append(time.perf_counter() - began)

    async def _post(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        async with self._client.post(path, json=body) as answer:
            return answer.status, await answer.json()


async def _arrivals(service: BenchService, sent_at: Mapping[str, float]) -> list[float]:
    """Return the seconds from the start of each verification until the sink had its mail."""
    ends = time.monotonic() + _ARRIVED_S
    while True:
        found = {one.recipients[0]: one.at for one in entries(service.sink_folder)}
        arrived = [address for address in sent_at if address in found]
        if len(arrived) == len(sent_at) or time.monotonic() > ends:
            return [datetime.fromisoformat(found[one]).timestamp() - sent_at[one] for one in arrived]
        await asyncio.sleep(0.5)


async def _address_checks(
    service: BenchService, client: aiohttp.ClientSession, progress: report.Progress
) -> dict[str, dict[str, float] | None]:
    progress.say(f"Checking {ADDRESSES} addresses")
    addresses = [f"ann@people{number}.test" for number in range(ADDRESSES)]
    cold = await _check_s(client, addresses)
    warm = [await _check_s(client, addresses) for _ in range(CHECK_TIMES)]
    responder = service.pids()["dns"]
    os.kill(responder, signal.SIGSTOP)
    try:
        dead = await _check_s(client, [f"ann@dead{number}.test" for number in range(ADDRESSES)])
    finally:
        os.kill(responder, signal.SIGCONT)
    return {
        f"{ADDRESSES} addresses, first": figures.percentiles([cold]),
        f"{ADDRESSES} addresses, warm": figures.percentiles(warm),
        f"{ADDRESSES} addresses, dead DNS": figures.percentiles([dead]),
    }


async def _check_s(client: aiohttp.ClientSession, addresses: Sequence[str]) -> float:
    began = time.perf_counter()
    async with client.post("/v1/address-checks", json={"addresses": addresses}) as answer:
        await answer.read()
        answer.raise_for_status()
    return time.perf_counter() - began


def _show(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(title, justify="right" if title else "left")
    for name, times in result["ms"].items():
        table.add_row(name, *map(str, (times or {}).values()))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"guesses evaluated: rounds = {result['guesses_evaluated']}; checked: {result['checked']}")
