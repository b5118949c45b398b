"""The drills of sudden death: a service of its own under load, a part struck at random moments, then the count."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import COMES_BACK_S, FAULTS, Fault, Struck, strike
from loadtests.drill.relay_sends import RelayClient
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.sends import ApiAccess, Send, SendClient, plan
from loadtests.drill.service import Service, ServicePart
from loadtests.drill.stage import (
    ASK_S,
    EMPTY_S,
    account_id,
    database_url,
    first_access,
    pending_hints,
    played,
    until_empty,
)
from loadtests.drill.stops import Stops
from loadtests.drill.verdict import DrillVerdict, judge, report_of

EVERY_S: Final = 1.5  # from one strike to the next, on average; half as long at least
RATE: Final = 120.0  # messages a second: below what half a service takes, so that a strike meets work, not a backlog
REPLAYED: Final = 50
ON_THE_WIRE: Final = 25  # copies too many that the death of one mta may leave: what waited for its commit

Also = Callable[[DrillVerdict], Awaitable[list[Check]]]  # what one drill checks beside what all check


class BackgroundSender(Protocol):
    """A client that sends a plan, and goes on until it is told to stop."""

    sends: list[Send]

    async def run(self, until: asyncio.Event) -> None:
        """Returns when everything is answered or given up."""


def kill_api(order: DrillOrder) -> DrillReport:
    """Row 1 and 2."""
    return _drilled("kill-api", order)


def kill_mta(order: DrillOrder) -> DrillReport:
    """Rows 3 and 4, at random moments; `wire` aims."""
    return _drilled("kill-mta", order, most_copies=order.rounds * ON_THE_WIRE)


def pause_mta(order: DrillOrder) -> DrillReport:
    """Row 5; `fence` does the same with slow mail servers."""
    stops = Stops()

    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        client = SendClient(service.base_url, access, plan(order.messages, "pause-mta"), rate=RATE, rng=order.rng)
        struck = await under_load(service, client, stops.strike, rounds=order.rounds, rng=order.rng)

        async def also(_: DrillVerdict) -> list[Check]:
            return [stops.judged(service.sink, client.sends)]

        copies = order.rounds * ON_THE_WIRE
        return await counted(service, access, client, struck, name="pause-mta", most_copies=copies, also=also)

    return played(play)


def kill_worker(order: DrillOrder) -> DrillReport:
    """Row 1."""
    return _drilled("kill-worker", order)


def kill_valkey(order: DrillOrder) -> DrillReport:
    """Row 6."""
    return _drilled("kill-valkey", order)


def kill_postgres(order: DrillOrder) -> DrillReport:
    """Row 9, the postmaster."""
    return _drilled("kill-postgres", order, most_copies=order.rounds * ON_THE_WIRE)


def kill_backend(order: DrillOrder) -> DrillReport:
    """Row 9, a backend."""
    return _drilled("kill-backend", order, most_copies=order.rounds * ON_THE_WIRE)


def kill_relay(order: DrillOrder) -> DrillReport:
    """Rows 1 and 2 at the other door."""

    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        sends = plan(order.messages, "kill-relay")
        client = RelayClient(service.submission_tls_port, access, sends, rate=RATE, rng=order.rng)
        struck = await under_load(service, client, FAULTS["kill-relay"], rounds=order.rounds, rng=order.rng)
        return await counted(service, access, client, struck, name="kill-relay")

    return played(play)


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
) -> DrillVerdict:
    """Send at least so many, strike so often, wait up to `patience_s` for the empty queue and judge, on a running
    service.

    `access` (default: the first run's) must belong to an account without other mail.
    """
    sender, drawn = access or first_access(service), rng or random.Random()
    client = SendClient(service.base_url, sender, plan(messages, name), rate=rate, rng=drawn)
    struck = await under_load(service, client, FAULTS[name], rounds=rounds, rng=drawn, every_s=every_s)
    return await judged(service, sender, client.sends, struck, name=name, patience_s=patience_s)


async def under_load(
    service: Service,
    client: BackgroundSender,
    fault: Fault,
    *,
    rounds: int,
    rng: random.Random,
    every_s: float = EVERY_S,
) -> list[Struck]:
    """Strike at random moments while the client sends; it goes on until the last strike."""
    over = asyncio.Event()
    struck: list[Struck] = []

    async def strikes() -> None:
        try:
            for _ in range(rounds):
                await asyncio.sleep(rng.uniform(0.5, 1.5) * every_s)
                struck.append(await asyncio.to_thread(strike, fault, service, rng))
        finally:
            over.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run(over))
        tasks.create_task(strikes())
    return struck


async def judged(
    service: Service,
    access: ApiAccess,
    sends: list[Send],
    struck: list[Struck],
    *,
    name: str,
    patience_s: float = EMPTY_S,
    store: Path | None = None,
) -> DrillVerdict:
    """The verdict once the queue is empty, or the patience at its end; `store` is where mail arrives, if not at the
    service's own sink."""
    began = min((send.first_at for send in sends if send.first_at), default=time.time())
    url = database_url(service)
    await until_empty(url, patience_s)
    took_s = time.time() - began
    return await judge(url, store or service.sink, account_id(access), sends, struck, drill=name, took_s=took_s)


async def counted(
    service: Service,
    access: ApiAccess,
    client: BackgroundSender,
    struck: list[Struck],
    *,
    name: str,
    most_copies: int = 0,
    parts: Iterable[ServicePart] = tuple(ServicePart),
    also: Also | None = None,
    store: Path | None = None,
) -> DrillReport:
    """The verdict as a report, with what else must hold after every fault: keys, hints, processes (`parts` of them)."""
    found = await judged(service, access, client.sends, struck, name=name, store=store)
    report = report_of(found)
    report.checks.append(
        Check(f"at most {most_copies} copies too many", found.copies <= most_copies, f"{found.copies}")
    )
    accepted = [send for send in client.sends if send.message_id is not None]
    again = accepted[:: max(1, len(accepted) // REPLAYED)][:REPLAYED]
    wrong = await SendClient(service.base_url, access, []).replay(again)
    report.checks.append(
        Check("a repeated key finds its message", not wrong, f"{len(again) - len(wrong)} of {len(again)}")
    )
    report.examples += [f"replay: {one.status} {one.said} {one.message_id}" for one in wrong[:3]]
    left = await pending_hints(service)
    report.checks.append(Check("no hint is left unacknowledged", left == 0, f"{left}"))
    report.checks.append(await _whole(service, parts))
    report.checks += await also(found) if also is not None else []
    return report


async def _whole(service: Service, parts: Iterable[ServicePart]) -> Check:
    """Every kind of process runs, once the supervisor's longest pause is over."""
    ends = time.monotonic() + COMES_BACK_S
    while True:
        away = [part.name.lower() for part in parts if not service.pids(part)]
        if not away or time.monotonic() > ends:
            return Check("every process runs again", not away, ", ".join(away) or "all")
        await asyncio.sleep(ASK_S)


def _drilled(name: str, order: DrillOrder, *, most_copies: int = 0) -> DrillReport:
    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        client = SendClient(service.base_url, access, plan(order.messages, name), rate=RATE, rng=order.rng)
        struck = await under_load(service, client, FAULTS[name], rounds=order.rounds, rng=order.rng)
        return await counted(service, access, client, struck, name=name, most_copies=most_copies)

    return played(play)
