"""`ops bench growth`: what stored messages and suppressions change: the cost of a message, and the console's lists.

Half of the stored messages belong to one account, whose lists are read; the others to the rest of the accounts. The
sending account, that one and eight more have suppressions.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from engine.base import ids
from engine.store.queries import Queries
from loadtests.bench import console_lists, figures, measure, stored
from loadtests.bench.load import HTTP_GENERATOR, LoadProcess
from loadtests.bench.measure import SERVER_ROLES
from loadtests.bench.measured_run import MeasuredRun, SendOptions
from loadtests.bench.report import Row, Say
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import BenchService, make_access
from loadtests.bench.yardstick import Yardstick
from loadtests.kit.accounts import ApiAccess
from loadtests.kit.http_client import ApiClient

BIG_DOMAIN: Final = "past.test"
WITH_SUPPRESSIONS: Final = 10  # accounts
REQUESTS, CONTACTS = 100_000, 20_000
SAMPLES: Final = 40  # requests of each list
MAX_LIST_MS, MAX_COST = 50.0, 1.1
_CHUNK: Final = 10_000
_COUNTING_S: Final = 900.0
_SAMPLE_S, _QUIET_TIMES, _QUIET_PERCENT = 2.0, 5, 10.0
_IMPORT: Final = 1_000
_NOT_FOR_KEYS: Final = frozenset({401, 403, 404})  # lists of operators and people, and of what the account lacks
_MAX_READING_S: Final = 10.0  # of one list
_SQL = Queries.beside(__file__, "growth.sql")
_MAKE_ACCOUNTS = _SQL.command("make_accounts")
_SUPPRESS = _SQL.command("suppress")
_LOG_REQUESTS = _SQL.command("log_requests")
_KEEP_NUMBERS = _SQL.command("keep_numbers")
_A_RECIPIENT = _SQL.command("a_recipient")


class GrowthBench(Struct, frozen=True, kw_only=True):
    """The options of the bench."""

    stored: int = 1_000_000
    accounts: int = 1_000
    suppressions: int = 100_000  # of each of ten accounts
    messages: int = 10_000
    rsa: bool = False

    async def measure(self, run: BenchRun) -> BenchResult:
        """Measure sending, fill the database, measure sending again and read the lists."""
        options = SendOptions(messages=self.messages, paced=False, rsa=self.rsa)
        async with run.service() as service:
            big = await make_access(service.settings, service.pool, BIG_DOMAIN)
            target = service.target(connections=options.connections, domains=options.recipient_domains)
            async with LoadProcess(HTTP_GENERATOR, target, service.settings.state / "log" / "generator.log") as load:
                sending = MeasuredRun(options, service, load, Yardstick(), run)
                costs = await sending.measure_around(lambda: self._fill(service, big, run.say))
            run.say("Reading the lists")
            lists = await _read_lists(service, big)
            deaths = service.deaths()
        cost = round(costs[1]["cost_in_signatures"] / costs[0]["cost_in_signatures"], 3)
        slow = [name for name, one in lists.items() if one["p95"] > MAX_LIST_MS]
        found = {
            "mode": "growth", "stored": self.stored, "accounts": self.accounts, "suppressions": self.suppressions,
            "messages": self.messages, "cost_before": costs[0], "cost_after": costs[1], "times_the_cost": cost,
            "lists_ms": lists, "slow": slow, "deaths": deaths,
            "checked": not deaths and not slow and cost <= MAX_COST,
        }  # fmt: skip
        return BenchResult(found, _rows(found))

    async def _fill(self, service: BenchService, big: ApiAccess, say: Say) -> None:
        pool = service.pool
        others = [ids.uuid7() for _ in range(max(1, self.accounts - 2))]
        await _MAKE_ACCOUNTS.execute(pool, others)
        holders = [service.access.account_id, big.account_id, *others][:WITH_SUPPRESSIONS]
        say(f"Suppressing {self.suppressions:,} addresses for each of {len(holders)} accounts")
        for first in range(0, self.suppressions, _CHUNK):
            await _SUPPRESS.execute(pool, holders, first, min(first + _CHUNK, self.suppressions) - 1)
        await _LOG_REQUESTS.execute(pool, big.account_id, REQUESTS)
        say(f"Importing {CONTACTS:,} contacts")
        async with ApiClient(service.base_url, big.key) as client:
            for first in range(0, CONTACTS, _IMPORT):
                await _import(client, first)
        await stored.store(pool, self.stored, say, [one for other in others for one in (other, big.account_id)])
        await _KEEP_NUMBERS.execute(pool, big.account_id)
        say("Waiting until the worker has counted the stored deliveries")
        await _until_quiet(service)


async def _until_quiet(service: BenchService) -> None:
    """Wait until the worker is idle; raises BenchFailed when it is not within `_COUNTING_S`."""
    roots = measure.roots_by_role(service.pids())
    ends = time.monotonic() + _COUNTING_S
    quiet = 0
    while quiet < _QUIET_TIMES:
        used = await measure.percent_of_core(roots, asyncio.sleep(_SAMPLE_S))
        quiet = quiet + 1 if used["worker"] < _QUIET_PERCENT else 0
        if time.monotonic() > ends:
            raise BenchFailed("The worker did not become idle.")


async def _import(client: ApiClient, first: int) -> None:
    contacts = [{"email": f"person{number}@d{number % 1000}.test"} for number in range(first, first + _IMPORT)]
    body = {"contacts": contacts, "consent": "customer"}
    answer = await client.call("POST", "/v1/contacts/import", body)
    if answer.status != 200:
        raise BenchFailed(f"Contacts were not imported: {answer.status} {answer.text}")


async def _read_lists(service: BenchService, big: ApiAccess) -> dict[str, dict[str, float]]:
    """Return the percentiles in ms of each list of the account, with those that it may read."""
    [row] = await _A_RECIPIENT.records(service.pool, big.account_id)
    found = {}
    async with ApiClient(service.base_url, big.key, connections=1) as client:
        for path in console_lists.requests(row["address"]):
            if (await client.call("GET", path)).status in _NOT_FOR_KEYS:
                continue
            for page in (path, await console_lists.second_page(client, path)):
                if page is not None:
                    name = path if page is path else f"{path} (second page)"
                    found[name] = await _timed(client, page)
    return found


async def _timed(client: ApiClient, path: str) -> dict[str, float]:
    """Return percentiles in ms; a search that is refused because it reads too many messages counts with its time."""
    took: list[float] = []
    while len(took) < SAMPLES and sum(took) < _MAX_READING_S:
        took.append((await client.call("GET", path)).took_s)
    return figures.percentiles(took) or {}


def _rows(found: Mapping[str, Any]) -> list[Row]:
    costs = found["cost_before"], found["cost_after"]
    lists = sorted(found["lists_ms"].items(), key=lambda one: -one[1]["p95"])
    return [
        (f"{found['stored']:,} messages, {found['accounts']:,} accounts, {found['suppressions']:,} suppressions each",),
        ("cost in signatures, before and after", *(f"{one['cost_in_signatures']:.2f}" for one in costs)),
        ("server CPU, ms a message", *(f"{one['server_cpu_ms_per_message']:.3f}" for one in costs)),
        *((f"… {role}", *(f"{one['cpu_ms_by_role'][role]:.3f}" for one in costs)) for role in SERVER_ROLES),
        (f"{found['times_the_cost']:.2f} times the cost",),
        (),
        ("milliseconds", "p50", "p95", "p99"),
        *((name, *(f"{ms:,.1f}" for ms in one.values())) for name, one in lists),
        (),
        (f"slower than {MAX_LIST_MS:.0f} ms: {', '.join(found['slow']) or 'none'}",),
    ]
