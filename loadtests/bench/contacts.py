"""`ops bench --contacts N`: imports, pages and searches with N stored contacts, and with a tenth of them.

A separate service is filled by imports of 1,000 rows. The requests go one after the other on one connection, while the
worker merges the search index; other work on the machine adds to the times.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import msgspec
import orjson
from rich.console import Console
from rich.table import Table

from engine.audience.contacts import imports, lists
from engine.audience.contacts.types import Consent
from engine.base import ids, settings
from engine.store.queries import Queries
from loadtests.bench import figures, report, timed_requests
from loadtests.bench.run_control import FAILURES, BenchFailed, machine_lock
from loadtests.bench.service import BenchService, own_service

ROWS: Final = 1_000
IMPORTS: Final = 60
TIMES: Final = 150  # of each other request
_FIRST: Final = "ann bob carl dora emil fatima george hana ivan julia kofi lena marc nora omar paula rosa sven tara uma"
_LAST: Final = "adams bauer costa duran evans fischer garcia hughes ito jones klein lopez meyer novak okoye park rossi"
_DOMAINS: Final = (
    "gmail.com",
    "outlook.com",
    "yahoo.com",
    "icloud.com",
    "gmx.net",
    "company.example",
    "school.example",
)
_ACTOR: Final = "operator"
_VACUUM_S: Final = 900.0
_VACUUM = Queries.beside(__file__, "contacts.sql").command("vacuum_contacts")


def run(*, contacts: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 when every request was answered."""
    progress = report.Progress()
    try:
        with machine_lock(progress.say):
            result = asyncio.run(_measure(contacts, progress))
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    _show(result, as_json=as_json)
    return 0


async def _measure(contacts: int, progress: report.Progress) -> dict[str, Any]:
    given = msgspec.structs.replace(settings.load(os.environ).settings, processes=("api", "worker"), api_workers=1)
    async with own_service(given, progress.say, delivering=True, tls=False) as service:
        made = await lists.create(service.pool, service.access.account_id, name="News", actor=_ACTOR)
        found: dict[str, Any] = {}
        stored = 0
        for wanted in (contacts // 10, contacts):
            while stored < wanted:
                rows = _rows(stored, min(ROWS, wanted - stored))
                await imports.import_contacts(
                    service.pool,
                    service.access.account_id,
                    rows,
                    consent=Consent.CUSTOMER,
                    list_id=made.id,
                    actor=_ACTOR,
                )
                stored += len(rows)
            progress.say(f"Stored {stored:,} contacts; measuring")
            await _vacuum(service)
            found[str(wanted)] = await _requests(service, stored, ids.format_id(ids.Kind.LIST, made.id))
            stored += IMPORTS * ROWS
    return {"mode": "contacts", "contacts": contacts, "ms": found}


def _rows(start: int, count: int) -> list[dict[str, Any]]:
    """Return rows whose names and domains repeat as those of people do."""
    chance = random.Random(start)
    first, last = _FIRST.split(), _LAST.split()
    rows = []
    for number in range(start, start + count):
        one, other = chance.choice(first), chance.choice(last)
        address = f"{one}.{other}.{chance.randrange(36**4):x}{number}@{chance.choice(_DOMAINS)}"
        fields = {"plan": chance.choice(("free", "pro", "team")), "seats": number % 50, "trial": number % 3 == 0}
        rows.append({"email": address, "name": f"{one.title()} {other.title()}", "fields": fields})
    return rows


async def _vacuum(service: BenchService) -> None:
    async with service.pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute(_VACUUM.sql, timeout=_VACUUM_S)
        await connection.execute("RESET statement_timeout")


async def _requests(service: BenchService, stored: int, list_id: str) -> dict[str, Any]:
    base = f"http://{service.settings.api_host}:{service.settings.api_port}"
    headers = {"Authorization": f"Bearer {service.access.key}"}
    middle = _rows(stored // 2 // ROWS * ROWS, 1)[0]["email"]
    paths = {
        "first page": "/v1/contacts?limit=50",
        "page of a list": f"/v1/contacts?limit=50&list={list_id}",
        "search of a frequent part": "/v1/contacts?limit=50&search=gmail",
        "search of a name": "/v1/contacts?limit=50&search=Okoye",
        "search of one old address": f"/v1/contacts?limit=50&search={middle}",
        "search without a match": "/v1/contacts?limit=50&search=nothing-like-this",
    }
    async with aiohttp.ClientSession(base, headers=headers, trust_env=False) as client:
        cursor = orjson.loads(await timed_requests.get(client, paths["page of a list"]))["nextCursor"]
        paths["second page"] = f"/v1/contacts?limit=50&before={cursor}"
        found = {name: await timed_requests.times(client, path, TIMES) for name, path in paths.items()}
        took = [await _import(client, stored + number * ROWS, list_id) for number in range(IMPORTS)]
        found["import of 1,000 new rows"] = figures.percentiles(took) or {}
        took = [await _import(client, stored + number * ROWS, list_id) for number in range(IMPORTS // 3)]
        found["import of 1,000 known rows"] = figures.percentiles(took) or {}
    return found


async def _import(client: aiohttp.ClientSession, start: int, list_id: str) -> float:
    body = orjson.dumps({"contacts": _rows(start, ROWS), "consent": "customer", "list": list_id})
    began = time.perf_counter()
    async with client.post("/v1/contacts/import", data=body, headers={"Content-Type": "application/json"}) as answer:
        said = await answer.read()
    if answer.status != 200:
        raise BenchFailed(f"An import was answered by {answer.status}: {said[:300]!r}")
    return time.perf_counter() - began


def _show(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("request", "contacts", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(title, justify="left" if title == "request" else "right")
    sizes = list(result["ms"])
    for name in result["ms"][sizes[0]]:
        for size in sizes:
            table.add_row(name, f"{int(size):,}", *map(str, result["ms"][size][name].values()))
    Console(highlight=False).print(table)
