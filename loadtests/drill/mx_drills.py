"""Drills of the MX: it is killed, PostgreSQL is away, and its processes are replaced, while mail comes in.

Every message for which a client has seen a 250 must be in each recipient's mailbox once, with its bytes.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from engine.receiving.inbound_addresses import service as addresses
from loadtests.drill import disk_faults
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import FAULTS, InjectedFault, kill_postgres
from loadtests.drill.fresh_service import account_id, database_url, new_access, run_on_service, until_empty
from loadtests.drill.kill_drills import under_load
from loadtests.drill.mailbox_reconciliation import compare, report_of
from loadtests.drill.mx_client import NO_REPLY, MxAttempt, MxClient
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.service import Service, ServicePart, child_pids, clear, make_folder
from ops import admin
from ops.host import rolling as roller

RATE: Final = 60.0
KILLED_RATE: Final = 60.0
EVERY_S: Final = 2.0
CUT: Final = 0.02  # the share of attempts in which the client hangs up after the final dot
FEW: Final = {"API_WORKERS": "1", "MTA_WORKERS": "1"}  # leave the processors to the MX
SEVERAL: Final = {"MX_WORKERS": "4"}  # the supervisor waits up to 10 s to start one that dies again and again
HUNG_S: Final = 10.0
AWAY_EVERY_S: Final = 6.0
ADDRESSES_EACH: Final = 3
_RESTART_S: Final = 1.0


def kill_mx(order: DrillOrder) -> DrillReport:
    """Kill mx processes again and again while mail comes in."""

    async def play(service: Service) -> DrillReport:
        accounts, recipients = await receivers(service)
        client = _client(service, recipients, "kill-mx", order.rng, rate=KILLED_RATE, cut=CUT)
        began = time.monotonic()
        fault = FAULTS["kill-mx"]
        injected = await under_load(service, client, fault, rounds=order.rounds, rng=order.rng, every_s=EVERY_S)
        return await mailbox_report("kill-mx", service, accounts, [client], injected, time.monotonic() - began)

    return run_on_service(play, FEW | SEVERAL)


def postgres_away(order: DrillOrder) -> DrillReport:
    """Kill PostgreSQL and let it hang while mail comes in."""

    async def play(service: Service) -> DrillReport:
        accounts, recipients = await receivers(service)
        client = _client(service, recipients, "mx-postgres-away", order.rng)
        began = time.monotonic()
        injected = await under_load(
            service, client, postgres_fault, rounds=order.rounds, rng=order.rng, every_s=AWAY_EVERY_S
        )
        report = await mailbox_report(
            "mx-postgres-away", service, accounts, [client], injected, time.monotonic() - began
        )
        report.checks.append(refused_only(client.attempts, {"451 4.3.0"}))
        return report

    return run_on_service(play, FEW)


def restart(order: DrillOrder) -> DrillReport:
    """Replace the mx processes one after the other while mail comes in."""

    async def play(service: Service) -> DrillReport:
        accounts, recipients = await receivers(service)
        clients = [
            _client(service, recipients, "mx-lasting", order.rng, rate=RATE / 2),
            _client(service, recipients, "mx-reconnecting", order.rng, rate=RATE / 2, lasting=False),
        ]
        over, injected, replaced = asyncio.Event(), list[InjectedFault](), list[str]()
        began = time.monotonic()

        async def restarts() -> None:
            try:
                for number in range(1, order.rounds + 1):
                    await asyncio.sleep(_RESTART_S)
                    at = time.time()
                    replaced.extend(await asyncio.to_thread(lambda: list(roller.ask_restart(service.state, ["mx"]))))
                    injected.append(InjectedFault(f"round {number}", at, time.time()))
            finally:
                over.set()

        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.run(over))
            tasks.create_task(restarts())
        report = await mailbox_report("mx-restart", service, accounts, clients, injected, time.monotonic() - began)
        report.checks += _uninterrupted([one for client in clients for one in client.attempts])
        names = Counter(replaced)
        whole = bool(names) and all(count == order.rounds for count in names.values())
        report.checks.append(Check("every mx process was replaced in every round", whole, f"{dict(names)}"))
        return report

    return run_on_service(play, FEW | {"MX_WORKERS": "2"})


def disk_full(order: DrillOrder) -> DrillReport:
    """Fill the disks of PostgreSQL and of the logs while mail comes in, then free them."""
    folder = make_folder()
    report: DrillReport | None = None
    try:
        with disk_faults.small_disk(folder, FEW) as (service, ballast):
            report = asyncio.run(_disk_full(service, order, ballast))
            status = service.stop()
            report.checks.append(Check("the service stops cleanly", status == 0, f"status {status}"))
        return report
    finally:
        if report is not None and report.passed:
            clear(folder)


async def _disk_full(service: Service, order: DrillOrder, ballast: Sequence[Path]) -> DrillReport:
    accounts, recipients = await receivers(service)
    client = _client(service, recipients, "mx-disk-full", order.rng)

    def full(_service: Service, _rng: random.Random) -> str:
        for file in ballast:
            disk_faults.fill_disk(file)
        time.sleep(disk_faults.FULL_S)
        for file in ballast:
            file.unlink()
        return "the disk was full"

    began = time.monotonic()
    injected = await under_load(service, client, full, rounds=order.rounds, rng=order.rng, every_s=AWAY_EVERY_S)
    report = await mailbox_report("mx-disk-full", service, accounts, [client], injected, time.monotonic() - began)
    # PostgreSQL refuses a statement (452), or stops when it can't write its WAL (451).
    report.checks.append(refused_only(client.attempts, {"452 4.3.1", "451 4.3.0"}))
    return report


async def receivers(service: Service, names: Sequence[str] = ("anna", "boris")) -> tuple[list[UUID], list[str]]:
    """Create an account for each name, with claimed addresses; return the accounts and all addresses in turn."""
    found: list[list[str]] = []
    accounts: list[UUID] = []
    for name in names:
        access = await new_access(service, name)
        accounts.append(account_id(access))
        found.append([f"mail{number}@{name}.test" for number in range(ADDRESSES_EACH)])
        async with admin.opened(service.settings) as pool:
            for address in found[-1]:
                await addresses.claim(pool, accounts[-1], address, label=None, mail_host=service.settings.mail_host)
    return accounts, [address for several in zip(*found, strict=True) for address in several]


async def mailbox_report(
    name: str,
    service: Service,
    accounts: Sequence[UUID],
    clients: Sequence[MxClient],
    injected: Sequence[InjectedFault],
    took_s: float,
) -> DrillReport:
    """Compare what the clients sent with the mailboxes, once PostgreSQL is back."""
    await until_empty(database_url(service))
    mails = [mail for client in clients for mail in client.mails]
    report = report_of(name, await compare(database_url(service), accounts, mails), clients, injected, took_s)
    refused = Counter(mail.refusal for mail in mails if mail.refusal)
    report.checks.append(Check("no message was refused for good", not refused, f"{dict(refused) or 0}"))
    return report


def refused_only(attempts: Sequence[MxAttempt], allowed: set[str]) -> Check:
    """Check that some attempts were refused, all of them by the `allowed` replies."""
    codes = Counter(one.reply for one in attempts if not one.reply.startswith("250") and one.reply != NO_REPLY)
    ok = bool(codes) and codes.keys() <= allowed
    return Check(f"messages are refused by {' or '.join(sorted(allowed))} only", ok, f"{dict(codes)}")


def postgres_fault(service: Service, rng: random.Random) -> str:
    """Kill PostgreSQL, or stop all of its processes for HUNG_S."""
    if rng.random() < 0.6:
        return kill_postgres(service, rng)
    mains = service.pids(ServicePart.POSTGRES)
    pids = [*mains, *(pid for main in mains for pid in child_pids(main))]
    try:
        _signal_all(pids, signal.SIGSTOP)
        time.sleep(HUNG_S)
    finally:
        _signal_all(pids, signal.SIGCONT)
    return f"{len(pids)} processes of PostgreSQL stopped for {HUNG_S:g} s"


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _client(
    service: Service,
    recipients: Sequence[str],
    run: str,
    rng: random.Random,
    *,
    rate: float = RATE,
    cut: float = 0.0,
    lasting: bool = True,
) -> MxClient:
    port = service.settings.mx_port
    return MxClient(port, recipients, run, rate=rate, rng=rng, cut=cut, lasting=lasting)


def _uninterrupted(attempts: Sequence[MxAttempt]) -> list[Check]:
    silent = [one for one in attempts if one.reply == NO_REPLY]
    stages = dict(Counter(one.stage for one in silent))
    refused, cut = ([one.text for one in silent if one.stage == stage] for stage in ("connect", "content"))
    left = Counter(one.reply for one in attempts if not one.reply.startswith("250") and one.reply != NO_REPLY)
    return [
        Check("no connection to the MX is refused", not refused, f"{len(attempts)} attempts, {refused[:2] or 0}"),
        Check("no message is interrupted", not cut, f"{cut[:2] or 0}"),
        # A 421 that crosses a command may be lost with the connection, before MAIL has been answered.
        Check("sessions end by 421 only", left.keys() <= {"421 4.3.2"}, f"{dict(left)}, closed: {stages}"),
    ]
