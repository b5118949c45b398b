"""Drills in which Valkey or PostgreSQL run but do not serve: they hang, refuse, lock or run out of room.

Meanwhile every request must be answered within a limit, a refusal must be a 503 with Retry-After, `/healthz` must
answer, and another account must be able to read.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp
import asyncpg
import redis.asyncio as redis
from msgspec import Struct

from engine.sending.accept import COMMIT_TIMEOUT_S
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import InjectedFault
from loadtests.drill.fresh_service import account_id, database_url, first_access, new_access, redis_url, run_on_service
from loadtests.drill.kill_drills import report_after_faults
from loadtests.drill.reconciliation import Reconciliation
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import ApiAccess, SendAttempt, SendClient, plan
from loadtests.drill.service import Service, ServicePart

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


def valkey_hung(order: DrillOrder) -> DrillReport:
    """Stop the Valkey process (fault 8)."""
    return _stalled("valkey-hung", order, _hung, HUNG_S)


def valkey_full(order: DrillOrder) -> DrillReport:
    """Let Valkey run out of memory without eviction (fault 8)."""
    return _stalled("valkey-full", order, _full, HUNG_S / 2)


def valkey_readonly(order: DrillOrder) -> DrillReport:
    """Make Valkey a read-only replica (fault 8)."""
    return _stalled("valkey-readonly", order, _readonly, HUNG_S / 2)


def postgres_locked(order: DrillOrder) -> DrillReport:
    """Hold an exclusive lock on `messages` (fault 11)."""
    return _stalled("postgres-locked", order, _locked, LOCKED_S, strict=False)


def postgres_crowded(order: DrillOrder) -> DrillReport:
    """Use up all connections of PostgreSQL (fault 11)."""
    return _stalled("postgres-crowded", order, _crowded, CROWDED_S, strict=False)


def postgres_deadlock(order: DrillOrder) -> DrillReport:
    """Take locks in the opposite order of the service (fault 11)."""
    return _stalled("postgres-deadlock", order, _deadlock, DEADLOCK_S)


class ProbeResult(Struct, frozen=True):
    """A probe request; status 0: no answer."""

    status: int
    took_s: float


class ApiProbes:
    """Requests `/healthz` and a list of another account ten times a second."""

    def __init__(self, service: Service, bystander: ApiAccess) -> None:
        self.health: list[ProbeResult] = []
        self.reads: list[ProbeResult] = []
        self._base = service.base_url
        self._headers = {"Authorization": f"Bearer {bystander.key}"}

    async def run(self, until: asyncio.Event) -> None:
        """Probe until the event is set, at a constant rate."""
        timeout = aiohttp.ClientTimeout(total=30)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False, connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as tasks,
        ):
            while not until.is_set():
                tasks.create_task(self._ask(session, "/healthz", self.health))
                tasks.create_task(self._ask(session, "/v1/domains", self.reads))
                await asyncio.sleep(PROBE_S)

    async def _ask(self, session: aiohttp.ClientSession, path: str, into: list[ProbeResult]) -> None:
        began, status = time.monotonic(), 0
        with suppress(aiohttp.ClientError, OSError):
            async with session.get(self._base + path, headers=self._headers) as answer:
                await answer.read()
                status = answer.status
        into.append(ProbeResult(status, time.monotonic() - began))


class ApiResources(Struct, frozen=True):
    """Threads and open files of the API workers."""

    threads: int
    files: int


def held(service: Service) -> ApiResources:
    """Return the threads and open files of all API workers."""
    threads = files = 0
    for pid in service.api_workers():
        with suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text("utf-8")
            threads += int(status.partition("Threads:")[2].split()[0])
            files += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return ApiResources(threads, files)


def _stalled(name: str, order: DrillOrder, stall: Stall, length_s: float, *, strict: bool = True) -> DrillReport:
    """Run a stall `order.rounds` times under load; unless `strict`, another account's reads may be refused with 503."""

    async def play(service: Service) -> DrillReport:
        access, bystander = first_access(service), await new_access(service, "bystander")
        client = SendClient(service.base_url, access, plan(order.messages, name), rate=RATE, rng=order.rng)
        probes, over = ApiProbes(service, bystander), asyncio.Event()
        injected: list[InjectedFault] = []
        before = most = held(service)

        async def stalls() -> None:
            nonlocal most
            try:
                for _ in range(order.rounds):
                    await asyncio.sleep(BETWEEN_S * order.rng.uniform(0.5, 1.5))
                    at = time.time()
                    async with stall(service, access) as label:
                        await asyncio.sleep(length_s)
                        most = max(most, held(service), key=lambda one: one.files)
                    injected.append(InjectedFault(label, at, time.time()))
                await asyncio.sleep(BETWEEN_S)
            finally:
                over.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.run(over))
            tasks.create_task(probes.run(over))
            tasks.create_task(stalls())

        async def extra_checks(_: Reconciliation) -> list[Check]:
            return [*_answers(client.tried), *_probed(probes, strict=strict), _no_pile(before, most)]

        report = await report_after_faults(service, access, client, injected, name=name, extra_checks=extra_checks)
        report.figures["answers"] = dict(Counter(one.status for one in client.tried))
        return report

    return run_on_service(play)


def _answers(tried: Sequence[SendAttempt]) -> list[Check]:
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
    os.kill(pid, signal.SIGSTOP)
    try:
        yield f"valkey {pid} stopped"
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def _full(service: Service, _access: ApiAccess) -> AsyncIterator[str]:
    client = redis.from_url(redis_url(service), socket_timeout=5)
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
    client = redis.from_url(redis_url(service), socket_timeout=5)
    await client.replicaof("127.0.0.1", "1")
    try:
        yield "valkey a replica"
    finally:
        await client.replicaof("NO", "ONE")
        await client.aclose()


@asynccontextmanager
async def _locked(service: Service, _access: ApiAccess) -> AsyncIterator[str]:
    connection = await asyncpg.connect(database_url(service), timeout=5)
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
    url = database_url(service)
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            connection = await asyncpg.connect(url, timeout=5)
            stack.callback(connection.terminate)
            found.append(connection)
    return found


@asynccontextmanager
async def _deadlock(service: Service, access: ApiAccess) -> AsyncIterator[str]:
    """Lock `messages` before the account head; the service locks the head first."""
    connection = await asyncpg.connect(database_url(service), timeout=5)
    outcome = "the service was rolled back"
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE messages IN SHARE ROW EXCLUSIVE MODE")
        await asyncio.sleep(random.uniform(0.2, 0.5))  # until a session holds the head and waits for the table
        try:
            await connection.execute(
                "SELECT FROM account_heads WHERE account_id = $1 FOR UPDATE", account_id(access), timeout=10
            )
        except asyncpg.DeadlockDetectedError:
            outcome = "the drill was rolled back"
        await transaction.rollback()
        yield f"deadlock: {outcome}"
    finally:
        await connection.close(timeout=5)
