"""`ops bench --mailbox N`: pages and counts of a mailbox with N messages, through the API.

A separate service is filled by bulk SQL, over four weeks and ten addresses. The requests go one after the other on one
connection; other work on the machine adds to the times.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import aiohttp
import msgspec
import orjson
from rich.console import Console
from rich.table import Table

from engine.base import clock, settings
from engine.receiving.inbound_addresses import service as addresses
from engine.store import partitions
from engine.store.queries import Queries
from loadtests.bench import report, timed_requests
from loadtests.bench.run_control import FAILURES, machine_lock
from loadtests.bench.service import DOMAIN, BenchService, own_service

WEEKS: Final = 4
ADDRESSES: Final = 10
CHUNK: Final = 10_000  # messages a statement: well below the sessions' time-out
TIMES: Final = 200  # of each request
_VACUUM_S: Final = 900.0
_LIST: Final = "/v1/inbound/messages"
REQUESTS: Final = {
    "first page": f"{_LIST}?limit=50",
    "page of unread messages": f"{_LIST}?limit=50&read=false",
    "page of spam": f"{_LIST}?limit=50&spam=true",
    "page of an address": f"{_LIST}?limit=50&address=news3@{DOMAIN}",
    "page of a sender": f"{_LIST}?limit=50&sender=person7@sender.test",
    "count": f"{_LIST}/count",
    "count of unread messages": f"{_LIST}/count?read=false",
    "count of an address without spam": f"{_LIST}/count?spam=false&address=news3@{DOMAIN}",
    "count of a sender": f"{_LIST}/count?sender=person7@sender.test",
}
_DEEP: Final = "page in the middle"
_HALF: Final = "count of unread messages of the newer half"
_SQL = Queries.beside(__file__, "mailbox.sql")
_STORE = _SQL.command("store_received")
_COUNT = _SQL.command("count_received")
_COUNT_DAYS = _SQL.command("count_days")
_VACUUM = _SQL.command("vacuum")


def run(*, messages: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 when every request was answered."""
    progress = report.Progress()
    try:
        with machine_lock(progress.say):
            result = asyncio.run(_measure(messages, progress))
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    _show(result, as_json=as_json)
    return 0


async def _measure(messages: int, progress: report.Progress) -> dict[str, Any]:
    given = msgspec.structs.replace(settings.load(os.environ).settings, processes=("api",), api_workers=1)
    async with own_service(given, progress.say, delivering=True, tls=False) as service:
        middle = await _fill(service, messages, progress)
        base = f"http://{service.settings.api_host}:{service.settings.api_port}"
        headers = {"Authorization": f"Bearer {service.access.key}"}
        async with aiohttp.ClientSession(base, headers=headers, trust_env=False) as client:
            half = f"{_LIST}?limit=50&until={middle}"
            newer = f"{_LIST}/count?read=false&from={middle}"
            wanted = REQUESTS | {_DEEP: half, _HALF: newer}
            found = {name: await timed_requests.times(client, path, TIMES) for name, path in wanted.items()}
            counted = orjson.loads(await timed_requests.get(client, f"{_LIST}/count"))
    return {"mode": "mailbox", "messages": messages, "answer": counted, "ms": found}


async def _fill(service: BenchService, messages: int, progress: report.Progress) -> str:
    """Store the messages; return the time of the middle one."""
    pool, account = service.pool, service.access.account_id
    claimed = [
        (await addresses.claim(pool, account, f"news{n}@{DOMAIN}", label=None, mail_host=service.settings.mail_host)).id
        for n in range(ADDRESSES)
    ]
    at = clock.now()
    async with pool.acquire() as connection:
        await partitions.ensure(connection, at - timedelta(weeks=WEEKS), ahead=WEEKS)
    first, last = clock.milliseconds(at - timedelta(weeks=WEEKS)), clock.milliseconds(at - timedelta(minutes=1))
    for start in range(0, messages, CHUNK):
        end = min(start + CHUNK, messages) - 1
        await _STORE.execute(pool, start, end, account, first, last, claimed, DOMAIN, str(first))
        if (end + 1) % 100_000 < CHUNK:
            progress.say(f"Stored {end + 1:,} of {messages:,} messages")
    progress.say("Counting and vacuuming")
    async with pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await _COUNT.execute(connection, account)
        await _COUNT_DAYS.execute(connection, account)
        await connection.execute(_VACUUM.sql, timeout=_VACUUM_S)
        await connection.execute("RESET statement_timeout")
    return (at - timedelta(weeks=WEEKS) / 2).strftime("%Y-%m-%dT%H:%M:%SZ")


def _show(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("request", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(title, justify="left" if title == "request" else "right")
    for name, times in result["ms"].items():
        table.add_row(name, *map(str, times.values()))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{result['messages']:,} messages; the count's answer: {result['answer']}")
