"""Drills that kill processes at random moments under load, and the steps that all drills share."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import COMES_BACK_S, FAULTS, Fault, InjectedFault, inject
from loadtests.drill.fresh_service import (
    ASK_S,
    EMPTY_S,
    account_id,
    database_url,
    first_access,
    run_on_service,
    until_empty,
)
from loadtests.drill.process_stops import ProcessStops
from loadtests.drill.reconciliation import Reconciliation, reconcile, report_of
from loadtests.drill.relay_client import RelayClient
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import ApiAccess, Send, SendClient, plan
from loadtests.drill.service import Service, ServicePart

EVERY_S: Final = 1.5  # from one strike to the next, on average; half as long at least
RATE: Final = 120.0  # messages a second: below what half a service takes, so that a strike meets work, not a backlog
REPLAYED: Final = 50
ON_THE_WIRE: Final = 25  # extra copies allowed per killed mta process: messages waiting for their commit

ExtraChecks = Callable[[Reconciliation], Awaitable[list[Check]]]  # what one drill checks beside what all check


class BackgroundLoad(Protocol):
    """A client that sends until it is told to stop."""

    async def run(self, until: asyncio.Event) -> None:
        """Send until the event is set; return when every message is answered or given up."""


class BackgroundSender(BackgroundLoad, Protocol):
    """A client that sends a plan first."""

    sends: list[Send]


def kill_api(order: DrillOrder) -> DrillReport:
    """Kill API workers and the HTTP server (faults 1 and 2)."""
    return _drilled("kill-api", order)


def kill_mta(order: DrillOrder) -> DrillReport:
    """Kill mta processes at random moments (faults 3 and 4); `final_dot` does so at chosen moments."""
    return _drilled("kill-mta", order, max_copies=order.rounds * ON_THE_WIRE)


def pause_mta(order: DrillOrder) -> DrillReport:
    """Stop mta processes for twice their lease (fault 5); `fence` does so with slow mail servers."""
    stops = ProcessStops()

    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        client = SendClient(service.base_url, access, plan(order.messages, "pause-mta"), rate=RATE, rng=order.rng)
        injected = await under_load(service, client, stops.inject, rounds=order.rounds, rng=order.rng)

        async def extra_checks(_: Reconciliation) -> list[Check]:
            return [stops.check_copies(service.sink, client.sends)]

        copies = order.rounds * ON_THE_WIRE
        return await report_after_faults(
            service, access, client, injected, name="pause-mta", max_copies=copies, extra_checks=extra_checks
        )

    return run_on_service(play)


def kill_worker(order: DrillOrder) -> DrillReport:
    """Kill the background worker (fault 1)."""
    return _drilled("kill-worker", order)


def kill_valkey(order: DrillOrder) -> DrillReport:
    """Empty and kill Valkey (fault 6)."""
    return _drilled("kill-valkey", order)


def kill_postgres(order: DrillOrder) -> DrillReport:
    """Kill the postmaster (fault 9)."""
    return _drilled("kill-postgres", order, max_copies=order.rounds * ON_THE_WIRE)


def kill_backend(order: DrillOrder) -> DrillReport:
    """Kill a PostgreSQL backend (fault 9)."""
    return _drilled("kill-backend", order, max_copies=order.rounds * ON_THE_WIRE)


def kill_relay(order: DrillOrder) -> DrillReport:
    """Kill the SMTP submission process (faults 1 and 2)."""

    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        sends = plan(order.messages, "kill-relay")
        client = RelayClient(service.submission_tls_port, access, sends, rate=RATE, rng=order.rng)
        injected = await under_load(service, client, FAULTS["kill-relay"], rounds=order.rounds, rng=order.rng)
        return await report_after_faults(service, access, client, injected, name="kill-relay")

    return run_on_service(play)


async def drill(
    service: Service,
    name: str,
    *,
    messages: int,
    rounds: int,
    access: ApiAccess | None = None,
    rate: float = RATE,
    patience_s: float = EMPTY_S,
    every_s: float = EVERY_S,
    rng: random.Random | None = None,
) -> Reconciliation:
    """Send, inject faults, wait for an empty queue (at most `patience_s`) and reconcile, on a running service.

    `access` (default: the account of the first start) must belong to an account without other mail.
    """
    sender, drawn = access or first_access(service), rng or random.Random()
    client = SendClient(service.base_url, sender, plan(messages, name), rate=rate, rng=drawn)
    injected = await under_load(service, client, FAULTS[name], rounds=rounds, rng=drawn, every_s=every_s)
    return await reconcile_when_idle(service, sender, client.sends, injected, name=name, patience_s=patience_s)


async def under_load(
    service: Service,
    client: BackgroundLoad,
    fault: Fault,
    *,
    rounds: int,
    rng: random.Random,
    every_s: float = EVERY_S,
) -> list[InjectedFault]:
    """Inject faults at random moments while the client sends, until the last fault; return the faults."""
    over = asyncio.Event()
    injected: list[InjectedFault] = []

    async def strikes() -> None:
        try:
            for _ in range(rounds):
                await asyncio.sleep(rng.uniform(0.5, 1.5) * every_s)
                injected.append(await asyncio.to_thread(inject, fault, service, rng))
        finally:
            over.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run(over))
        tasks.create_task(strikes())
    return injected


async def reconcile_when_idle(
    service: Service,
    access: ApiAccess,
    sends: list[Send],
    injected: list[InjectedFault],
    *,
    name: str,
    patience_s: float = EMPTY_S,
    store: Path | None = None,
) -> Reconciliation:
    """Reconcile once the queue is empty, or after `patience_s`; `store` replaces the service's own sink."""
    began = min((send.first_at for send in sends if send.first_at), default=time.time())
    url = database_url(service)
    await until_empty(url, patience_s)
    took_s = time.time() - began
    return await reconcile(url, store or service.sink, account_id(access), sends, injected, drill=name, took_s=took_s)


async def report_after_faults(
    service: Service,
    access: ApiAccess,
    client: BackgroundSender,
    injected: list[InjectedFault],
    *,
    name: str,
    max_copies: int = 0,
    parts: Iterable[ServicePart] = tuple(ServicePart),
    extra_checks: ExtraChecks | None = None,
    store: Path | None = None,
) -> DrillReport:
    """Reconcile, and check what must hold after every fault: idempotency keys, processes (`parts`)."""
    found = await reconcile_when_idle(service, access, client.sends, injected, name=name, store=store)
    report = report_of(found)
    report.checks.append(Check(f"at most {max_copies} extra copies", found.copies <= max_copies, f"{found.copies}"))
    accepted = [send for send in client.sends if send.message_id is not None]
    again = accepted[:: max(1, len(accepted) // REPLAYED)][:REPLAYED]
    wrong = await SendClient(service.base_url, access, []).replay(again)
    report.checks.append(
        Check("a repeated idempotency key returns its message", not wrong, f"{len(again) - len(wrong)} of {len(again)}")
    )
    report.examples += [f"replay: {one.status} {one.refusal} {one.message_id}" for one in wrong[:3]]
    report.checks.append(await _whole(service, parts))
    report.checks += await extra_checks(found) if extra_checks is not None else []
    return report


async def _whole(service: Service, parts: Iterable[ServicePart]) -> Check:
    """Check that every kind of process runs, waiting at most the supervisor's longest pause."""
    ends = time.monotonic() + COMES_BACK_S
    while True:
        away = [part.name.lower() for part in parts if not service.pids(part)]
        if not away or time.monotonic() > ends:
            return Check("every process runs again", not away, ", ".join(away) or "all")
        await asyncio.sleep(ASK_S)


def _drilled(name: str, order: DrillOrder, *, max_copies: int = 0) -> DrillReport:
    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        client = SendClient(service.base_url, access, plan(order.messages, name), rate=RATE, rng=order.rng)
        injected = await under_load(service, client, FAULTS[name], rounds=order.rounds, rng=order.rng)
        return await report_after_faults(service, access, client, injected, name=name, max_copies=max_copies)

    return run_on_service(play)
