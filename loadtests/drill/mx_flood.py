"""`ops drill mx-report-flood`: strangers send large mails to report addresses, while a bystander's mail comes in.

10 networks with 50 sessions each send mails of 7 MB to four report addresses. Rules: the database grows by no more than
the networks may send, every mail is accepted or refused for now, and the bystander's mail is accepted, stored and not
slower than twice its p99 right before. `--minutes` sets the length of the flood.
"""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import Final

from loadtests.bench.load import SMTP_GENERATOR, LoadProcess
from loadtests.drill import mx_hostile
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.mx_attacks import AttackTarget, ReportFlood
from loadtests.drill.mx_drills import FEW, receivers
from loadtests.drill.mx_hostile import HostileClients
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import at_best, on_service
from loadtests.kit.service import Service

NAME: Final = "mx-report-flood"
NETWORKS: Final = 10
SESSIONS: Final = 50  # of each network
MAIL_BYTES: Final = 7 * 1000 * 1000
MAILS_PER_S: Final = 6.0  # of all sessions: bounded, so that the machine itself is not full
DEFAULT_MINUTES: Final = 1.0
# A network may send 16 MiB at once; a report takes up to 4% more in TOAST, and the bystander's mail comes on top.
MAX_GROWTH_MB: Final = NETWORKS * 16 * 1.05 * 1.25
ANSWERS: Final = {"250 2.0.0", "452 4.7.0", "452 4.3.1"}


@on_service(FEW)
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Run the flood."""
    seconds, within = 60.0 * (order.minutes or DEFAULT_MINUTES), mx_hostile.WITHIN
    settings = service.settings
    accounts, recipients = await receivers(service, ("bystander", "attacked"))
    target = AttackTarget(settings.mx_port, recipients[1])
    flood = ReportFlood(settings.mx_port, settings.mail_host, size=MAIL_BYTES)
    began = time.monotonic()
    load = await mx_hostile.bystander(service, recipients[0])
    async with LoadProcess(SMTP_GENERATOR, load, service.state / "generator.log") as process:
        clients = HostileClients(service, process, target)
        await clients.warm_up()
        before = await clients.measured(mx_hostile.PHASE_S)
        size = await _database_mb(service)
        replies = Counter[str]()
        during, tries = await at_best(
            lambda _number: _flooded(flood, clients, seconds, replies), lambda one: one["p99_ms"],
            within * before["p99_ms"], mx_hostile.TRIES,
        )  # fmt: skip
        grown = round(await _database_mb(service) - size, 1)
    stored = (await mx_hostile.stored_of(service, accounts))["bystander"]
    accepted = clients.sent - clients.refused.total()
    ratio = round(during["p99_ms"] / max(before["p99_ms"], 0.001), 2)
    codes = Counter[str]()
    for reply, count in replies.items():
        codes[reply[:9]] += count
    checks = [
        Check(f"the database grows by {MAX_GROWTH_MB:g} MB at most", grown <= MAX_GROWTH_MB, f"{grown} MB"),
        Check("each mail is accepted or refused for now", codes.keys() <= ANSWERS, f"{dict(codes)}"),
        Check("the bystander's mail is not refused", not clients.refused, f"{dict(clients.refused) or 0}"),
        Check(f"the bystander's p99 stays below {within:g} times", ratio < within, f"{ratio}, {tries} tries"),
    ]
    return DrillReport(
        drill=NAME, sent=clients.sent, accepted=accepted, delivered=stored, lost=accepted - stored,
        took_s=time.monotonic() - began, checks=checks,
        figures={
            "mails of strangers": replies.total(),
            "sent to addresses, MB": round(replies.total() * 4 * MAIL_BYTES / 1e6),
            "database, MB more": grown,
            "bystander, ms": f"p50 {during['p50_ms']}, p99 {during['p99_ms']}; before {before}",
        },
    )  # fmt: skip


async def _flooded(
    flood: ReportFlood, clients: HostileClients, seconds: float, replies: Counter[str]
) -> dict[str, float]:
    """Return the bystander's times while all sessions send mails; counts their replies."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(NETWORKS * SESSIONS):
            tasks.create_task(_session(flood, number, over, replies))
        times = await clients.measured(seconds)
        over.set()
    return times


async def _session(flood: ReportFlood, number: int, over: asyncio.Event, replies: Counter[str]) -> None:
    """Stay connected and send a mail whenever it is this session's turn."""
    try:
        async with flood.session(number % NETWORKS) as session:
            wait_s = number / MAILS_PER_S
            while not await _is_over(over, wait_s):
                replies[await flood.send(session) or "no reply"] += 1
                wait_s = NETWORKS * SESSIONS / MAILS_PER_S
    except (OSError, EOFError) as error:  # the time-out is an OSError
        replies[repr(error)] += 1


async def _is_over(over: asyncio.Event, wait_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await over.wait()
    return over.is_set()


async def _database_mb(service: Service) -> float:
    """Return the size of the database on disk, in MB."""
    return float(await service.value("SELECT pg_database_size(current_database())")) / 1e6
