"""Drills in which Valkey or PostgreSQL run but do not serve: they hang, refuse, lock or run out of room.

Meanwhile every request must be answered within a limit, a refusal must be a 503 with Retry-After, `/healthz` must
answer, and another account must be able to read.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import asyncpg
import redis.asyncio as redis
from msgspec import Struct

from engine.sending.accept import COMMIT_TIMEOUT_S
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import injected_faults, on_service, planned_client, report_after_faults, while_sending
from loadtests.kit.accounts import ApiAccess, first_access, new_access
from loadtests.kit.http_client import ApiAnswer, ApiClient
from loadtests.kit.processes import open_files, signal_all, threads
from loadtests.kit.service import Service, ServicePart

RATE: Final = 80.0
HUNG_S: Final = 30.0
LOCKED_S: Final = 20.0
CROWDED_S: Final = 15.0
DEADLOCK_S: Final = 3.0  # PostgreSQL's deadlock_timeout is 1 s
BETWEEN_S: Final = 3.0
ANSWER_S: Final = COMMIT_TIMEOUT_S + 3.0  # within which every send is answered
HEALTHY_S: Final = 2.0  # for `/healthz`, on a machine full of other work
READ_S: Final = 8.0  # for another account's read: a session of the database has to be had
_CROWDING_TRIES: Final = 50
_END_SESSIONS: Final = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'waybill %'"
)
PROBE_S: Final = 0.1
MAX_THREADS: Final = 40  # more than before: the pool of threads fills up once and stays
MAX_FILES: Final = 400  # connections of clients that wait for an answer, and of probes

Stall = Callable[[Service, ApiAccess], AbstractAsyncContextManager[str]]


class StallCase(Struct, frozen=True):
    """A stall and its length; unless `strict`, another account's reads may be refused with 503 meanwhile."""

    stall: Stall
    length_s: float
    strict: bool = True


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Run the stall that is named after one of `STALLS` under load."""
    case = STALLS[order.name]
    access = first_access(service)
    client = planned_client(service, order, order.name, rate=RATE)
    probes = ApiProbes(service, await new_access(service.settings, "bystander"))
    before = held(service)
    most = [before]

    async def stall() -> str:
        async with case.stall(service, access) as label:
            await asyncio.sleep(case.length_s)
            most.append(held(service))
        return label

    faults = injected_faults(stall, rounds=order.rounds, rng=order.rng, every_s=BETWEEN_S, rest_s=BETWEEN_S)
    injected = await while_sending([client, probes], faults)
    report = await report_after_faults(service, access, client, injected, name=order.name)
    report.checks += [*_answers(client.tried), *_probed(probes, strict=case.strict)]
    report.checks.append(_no_pile(before, max(most, key=lambda one: one.files)))
    report.figures["answers"] = dict(Counter(one.status for one in client.tried))
    return report


class ApiProbes:
    """Requests `/healthz` and a list of another account ten times a second."""

    def __init__(self, service: Service, bystander: ApiAccess) -> None:
        self.health: list[ApiAnswer] = []
        self.reads: list[ApiAnswer] = []
        self._api = ApiClient(service.base_url, bystander.key, connections=0, timeout_s=30)

    async def run(self, until: asyncio.Event) -> None:
        """Probe until the event is set, at a constant rate."""
        async with self._api, asyncio.TaskGroup() as tasks:
            while not until.is_set():
                tasks.create_task(self._ask("/healthz", self.health))
                tasks.create_task(self._ask("/v1/domains", self.reads))
                await asyncio.sleep(PROBE_S)

    async def _ask(self, path: str, into: list[ApiAnswer]) -> None:
        into.append(await self._api.call("GET", path))


class ApiResources(Struct, frozen=True):
    """Threads and open files of the API workers."""

    threads: int
    files: int


def held(service: Service) -> ApiResources:
    """Return the threads and open files of all API workers."""
    workers = service.api_workers()
    return ApiResources(sum(map(threads, workers)), sum(map(open_files, workers)))


def _answers(tried: Sequence[ApiAnswer]) -> list[Check]:
    slowest = max((one.took_s for one in tried), default=0.0)
    strange = Counter(one.status for one in tried if one.status not in (200, 202, 503))
    refused = [one for one in tried if one.status == 503]
    unsaid = sum(one.retry_after is None for one in refused)
    return [
        Check("every send is answered by 202, 200 or 503", not strange, f"{dict(strange) or 'no other answer'}"),
        Check(f"within {ANSWER_S:g} s", slowest <= ANSWER_S, f"{slowest:.2f} s at most"),
        Check("every 503 has Retry-After", unsaid == 0, f"{len(refused)} of them, {unsaid} without"),
    ]


def _probed(probes: ApiProbes, *, strict: bool) -> list[Check]:
    health, reads = probes.health, probes.reads
    failed = Counter(one.status for one in health if one.status != 200)
    slowest, longest = (max((one.took_s for one in found), default=0.0) for found in (health, reads))
    allowed = (200,) if strict else (200, 503)
    wrong = Counter(one.status for one in reads if one.status not in allowed)
    served = sum(one.status == 200 for one in reads)
    words = (
        "another account can read during the stall"
        if strict
        else "reads of another account are answered during the stall"
    )
    return [
        Check("/healthz always answers", not failed and slowest <= HEALTHY_S,
              f"{slowest:.2f} s at most, {dict(failed)}"),
        Check(words, not wrong and longest <= READ_S and served > 0,
              f"{served} of {len(reads)}, {longest:.2f} s at most, {dict(wrong)}"),
    ]  # fmt: skip


def _no_pile(before: ApiResources, most: ApiResources) -> Check:
    small = most.threads - before.threads <= MAX_THREADS and most.files - before.files <= MAX_FILES
    found = f"threads {before.threads} to {most.threads}, files {before.files} to {most.files}"
    return Check("threads and files of the API stay bounded", small, found)


# -- the stalls ------------------------------------------------------------------------------------


@asynccontextmanager
async def _hung(service: Service, _access: ApiAccess) -> AsyncIterator[str]:
    [pid] = service.pids(ServicePart.VALKEY)
    signal_all([pid], signal.SIGSTOP)
    try:
        yield f"valkey {pid} stopped"
    finally:
        signal_all([pid], signal.SIGCONT)


@asynccontextmanager
async def _full(service: Service, _access: ApiAccess) -> AsyncIterator[str]:
    client = redis.from_url(service.redis_url, socket_timeout=5)
    kept = str((await client.config_get("maxmemory"))["maxmemory"])
    await client.config_set("maxmemory", "1")
    try:
        yield "valkey out of memory"
    finally:
        await client.config_set("maxmemory", kept)
        await client.aclose()


@asynccontextmanager
async def _readonly(service: Service, _access: ApiAccess) -> AsyncIterator[str]:
    """Make Valkey the replica of an absent primary: it keeps its data and refuses writes."""
    client = redis.from_url(service.redis_url, socket_timeout=5)
    await client.replicaof("127.0.0.1", "1")
    try:
        yield "valkey a replica"
    finally:
        await client.replicaof("NO", "ONE")
        await client.aclose()


@asynccontextmanager
async def _locked(service: Service, _access: ApiAccess) -> AsyncIterator[str]:
    connection = await asyncpg.connect(service.database_url, timeout=5)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
            yield "messages locked"
    finally:
        await connection.close(timeout=5)


@asynccontextmanager
async def _crowded(service: Service, _access: ApiAccess) -> AsyncIterator[str]:
    """Take every connection, also those of the service's own sessions, which are terminated."""
    async with AsyncExitStack() as stack:
        taken = await _taken(service, stack)
        ended = 0
        for _ in range(_CROWDING_TRIES):
            found = await taken[0].fetchval(_END_SESSIONS)
            ended += found
            taken += await _taken(service, stack)  # as fast as the service comes back
            if not found:
                break
        yield f"{len(taken)} connections taken, {ended} of the service ended"


async def _taken(service: Service, stack: AsyncExitStack) -> list[asyncpg.Connection]:
    """Open connections until PostgreSQL refuses."""
    found: list[asyncpg.Connection] = []
    url = service.database_url
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            connection = await asyncpg.connect(url, timeout=5)
            stack.callback(connection.terminate)
            found.append(connection)
    return found


@asynccontextmanager
async def _deadlock(service: Service, access: ApiAccess) -> AsyncIterator[str]:
    """Lock `messages` before the account head; the service locks the head first."""
    connection = await asyncpg.connect(service.database_url, timeout=5)
    outcome = "the service was rolled back"
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE messages IN SHARE ROW EXCLUSIVE MODE")
        await asyncio.sleep(random.uniform(0.2, 0.5))  # until a session holds the head and waits for the table
        try:
            await connection.execute(
                "SELECT FROM account_heads WHERE account_id = $1 FOR UPDATE", access.account_id, timeout=10
            )
        except asyncpg.DeadlockDetectedError:
            outcome = "the drill was rolled back"
        await transaction.rollback()
        yield f"deadlock: {outcome}"
    finally:
        await connection.close(timeout=5)


STALLS: Final[dict[str, StallCase]] = {
    "valkey-hung": StallCase(_hung, HUNG_S),
    "valkey-full": StallCase(_full, HUNG_S / 2),
    "valkey-readonly": StallCase(_readonly, HUNG_S / 2),
    "postgres-locked": StallCase(_locked, LOCKED_S, strict=False),
    "postgres-crowded": StallCase(_crowded, CROWDED_S, strict=False),
    "postgres-deadlock": StallCase(_deadlock, DEADLOCK_S),
}
