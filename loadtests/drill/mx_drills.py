"""Drills of the MX: it is killed, PostgreSQL is away, and its processes are replaced, while mail comes in.

Every message for which a client has seen a 250 must be in each recipient's mailbox once, with its bytes.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from engine.receiving.inbound_addresses import service as addresses
from loadtests.drill import disk_faults
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import FAULTS, Fault, InjectedFault, kill_postgres
from loadtests.drill.mailbox_reconciliation import compare, report_of
from loadtests.drill.mx_client import NO_REPLY, MxAttempt, MxClient
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.rolling import all_replaced, restart_in_rounds
from loadtests.drill.running import on_service, under_load, until_empty, while_sending
from loadtests.kit.accounts import new_access
from loadtests.kit.processes import signal_all
from loadtests.kit.service import Service, ServicePart
from ops import admin

RATE: Final = 60.0
EVERY_S: Final = 2.0
CUT: Final = 0.02  # the share of attempts in which the client hangs up after the final dot
FEW: Final = {"API_WORKERS": "1", "MTA_WORKERS": "1"}  # leave the processors to the MX
SEVERAL: Final = {"MX_WORKERS": "4"}  # the supervisor waits up to 10 s to start one that dies again and again
HUNG_S: Final = 10.0
AWAY_EVERY_S: Final = 6.0
ADDRESSES_EACH: Final = 3
_RESTART_S: Final = 1.0


@on_service(FEW | SEVERAL)
async def kill_mx(service: Service, order: DrillOrder) -> DrillReport:
    """Kill mx processes again and again while mail comes in."""
    report, _ = await _faulted(service, order, "kill-mx", FAULTS["kill-mx"], every_s=EVERY_S, cut=CUT)
    return report


@on_service(FEW)
async def postgres_away(service: Service, order: DrillOrder) -> DrillReport:
    """Kill PostgreSQL and let it hang while mail comes in."""
    report, client = await _faulted(service, order, "mx-postgres-away", postgres_fault, every_s=AWAY_EVERY_S)
    report.checks.append(refused_only(client.attempts, {"451 4.3.0"}))
    return report


def disk_full(order: DrillOrder) -> DrillReport:
    """Fill the disks of PostgreSQL and of the logs while mail comes in, then free them."""

    async def play(service: Service, ballast: Sequence[Path]) -> DrillReport:
        def full(_service: Service, _rng: random.Random) -> str:
            return disk_faults.fill_for_a_while(ballast)

        report, client = await _faulted(service, order, "mx-disk-full", full, every_s=AWAY_EVERY_S)
        # PostgreSQL refuses a statement (452), or stops when it can't write its WAL (451).
        report.checks.append(refused_only(client.attempts, {"452 4.3.1", "451 4.3.0"}))
        return report

    return disk_faults.run_on_small_disk(play, order.settings(FEW))


@on_service(FEW | {"MX_WORKERS": "2"})
async def restart(service: Service, order: DrillOrder) -> DrillReport:
    """Replace the mx processes one after the other while mail comes in."""
    accounts, recipients = await receivers(service)
    clients = [
        MxClient(service.mx_port, recipients, name, rate=RATE / 2, rng=order.rng, lasting=lasting)
        for name, lasting in (("mx-lasting", True), ("mx-reconnecting", False))
    ]
    replaced: list[str] = []
    began = time.monotonic()
    restarts = restart_in_rounds(service, order.rounds, [service.process_kind(ServicePart.MX)], replaced, _RESTART_S)
    injected = await while_sending(clients, restarts)
    report = await mailbox_report("mx-restart", service, accounts, clients, injected, time.monotonic() - began)
    report.checks += _uninterrupted([one for client in clients for one in client.attempts])
    report.checks.append(all_replaced("every mx process was replaced in every round", replaced, order.rounds))
    return report


async def _faulted(
    service: Service, order: DrillOrder, name: str, fault: Fault, *, every_s: float, cut: float = 0.0
) -> tuple[DrillReport, MxClient]:
    """Inject faults while mail comes in, and compare it with the mailboxes."""
    accounts, recipients = await receivers(service)
    client = MxClient(service.mx_port, recipients, name, rate=RATE, rng=order.rng, cut=cut)
    began = time.monotonic()
    injected = await under_load(service, client, fault, rounds=order.rounds, rng=order.rng, every_s=every_s)
    report = await mailbox_report(name, service, accounts, [client], injected, time.monotonic() - began)
    return report, client


async def receivers(service: Service, names: Sequence[str] = ("anna", "boris")) -> tuple[list[UUID], list[str]]:
    """Create an account for each name, with claimed addresses; return the accounts and all addresses in turn."""
    found: list[list[str]] = []
    accounts: list[UUID] = []
    for name in names:
        accounts.append((await new_access(service.settings, name)).account_id)
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
    await until_empty(service.database_url)
    mails = [mail for client in clients for mail in client.mails]
    report = report_of(name, await compare(service.database_url, accounts, mails), clients, injected, took_s)
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
    pids = service.with_children(ServicePart.POSTGRES)
    try:
        signal_all(pids, signal.SIGSTOP)
        time.sleep(HUNG_S)
    finally:
        signal_all(pids, signal.SIGCONT)
    return f"{len(pids)} processes of PostgreSQL stopped for {HUNG_S:g} s"


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
