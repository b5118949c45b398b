"""`ops drill scale`: change the number of mta processes while thousands of messages wait.

Most messages are for one domain. Every ten seconds the number of mta processes changes: 2, 4, 1, 3; the hot domain is
split and merged meanwhile. In the first round processes end by SIGTERM and no message may arrive twice; in every second
one by SIGKILL, and messages with their final dot on the wire may. Each domain has its own mail server, which checks
that all processes together keep the connection limit of its site.
"""

import asyncio
import random
import signal
import subprocess
import time
from contextlib import suppress
from typing import Final, Self

import asyncpg
import msgspec

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import Send, SendClient
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.faults import InjectedFault
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport, combined
from loadtests.drill.running import ON_THE_WIRE, report_after_faults, run_with_network
from loadtests.drill.site_sinks import SinkSites
from loadtests.kit.accounts import first_access
from loadtests.kit.service import Service
from ops import admin
from ops.host import process_specs
from ops.host.supervise import ProcessSpec
from shards import admin as shard_admin

NAME: Final = "scale"
COUNTS: Final = (2, 4, 1, 3)
EVERY_S: Final = 10.0  # with as many messages as make it last; with fewer the changes come closer
MESSAGES: Final = 10_000
HOT: Final = "hot.test"
DOMAINS: Final = (HOT, *(f"cool{number}.test" for number in range(7)))
HOT_PART: Final = 0.6
PARTS: Final = 4
LIMIT: Final = 20  # connections to a site, of all processes together
DOT_S: Final = 0.2  # how long a mail server thinks about a message: mail waits, and further connections help
QUEUEING_S: Final = 2.0  # the same while the queue is being filled, before the first change
SETTINGS: Final = {"MTA_WORKERS": "1", "SITE_CONNECTIONS": str(LIMIT), "SHARD_RULES": "manual"}
_STOP_S: Final = 40.0
_LOOK_S: Final = 0.3


def run(order: DrillOrder) -> DrillReport:
    """Run the rounds, each on a new service; every second one uses SIGKILL."""
    return combined(NAME, [_round(order, number) for number in range(order.rounds)])


def _round(order: DrillOrder, number: int) -> DrillReport:
    how = signal.SIGKILL if number % 2 else signal.SIGTERM

    async def play(service: Service, network: DrillNetwork) -> DrillReport:
        with ExtraMtas(service, how) as mtas:
            return await _played(service, network, mtas, order.messages)

    report = run_with_network(play, SETTINGS)
    report.drill = f"round {number + 1}, {how.name}"
    return report


class ExtraMtas:
    """Additional mta processes on the service's state folder and settings; they are ended by signal `how`."""

    def __init__(self, service: Service, how: signal.Signals) -> None:
        self.killed: list[InjectedFault] = []
        self.how = how
        settings = msgspec.structs.replace(service.settings, mta_workers=max(COUNTS), allow_private_mx=True)
        self._specs = {spec.name: spec for spec in process_specs.processes(settings) if spec.name.startswith("mta-")}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            process.kill()
            process.wait()

    def scale_to(self, count: int) -> None:
        """Start or end processes until `count` run, including the service's own one."""
        names = [f"mta-{number}" for number in range(2, count + 1)]
        removed = {name: self._running.pop(name) for name in list(self._running) if name not in names}
        for name, process in removed.items():
            if self.how is signal.SIGKILL:
                self.killed.append(InjectedFault(f"{name} killed", time.time(), time.time()))
            process.send_signal(self.how)
        for process in removed.values():
            process.wait(_STOP_S)
        for name in names:
            if name not in self._running:
                self._running[name] = _started(self._specs[name])


def _started(spec: ProcessSpec) -> "subprocess.Popen[bytes]":
    assert spec.log is not None  # drills leave logs in files
    with spec.log.open("ab") as log:
        return subprocess.Popen(
            spec.argv, env=dict(spec.env), cwd=spec.cwd, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


async def _played(service: Service, network: DrillNetwork, mtas: ExtraMtas, messages: int) -> DrillReport:
    access, store = first_access(service), service.state.parent / "mail"
    client = SendClient(service.base_url, access, plan(messages))
    sites = SinkSites(DOMAINS, store, network.point, port=service.sink_port, delay_s=QUEUEING_S)
    moved: dict[tuple[object, ...], int] = {}
    async with sites, admin.opened(service.settings) as pool:
        counting = asyncio.create_task(_count_moved(pool, moved))
        await client.run()
        sites.pace(DOT_S)
        queued = await _changes(service, mtas, pool, EVERY_S * min(1.0, messages / MESSAGES))

        copies = AllowedCopies.each(len(mtas.killed), ON_THE_WIRE, CopyReason.MTA_KILLED)
        report = await report_after_faults(
            service, access, client, mtas.killed, name=NAME, allowed_copies=copies, store=store
        )  # fmt: skip
        report.checks += [
            Check("mail waits at every change", min(queued) > 0, ", ".join(map(str, queued))),
            Check("windows hold for all processes together", sites.max_open <= LIMIT,
                  f"{sites.max_open} connections to a site at the most, {LIMIT} allowed"),
        ]  # fmt: skip
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting
    report.figures |= {"numbers of processes": COUNTS, "rows brought to other shards": sum(moved.values())}
    return report


async def _changes(service: Service, mtas: ExtraMtas, pool: asyncpg.Pool, every_s: float) -> list[int]:
    """Change the number of processes step by step; return the queue length before each step."""
    queued = []
    for number, count in enumerate(COUNTS):
        queued.append(int(await pool.fetchval("SELECT count(*) FROM queue")))
        await asyncio.to_thread(mtas.scale_to, count)
        if number in (1, len(COUNTS) - 1):
            parts = PARTS if number == 1 else 1
            split = await shard_admin.plan_split(pool, service.settings, HOT, parts, why="drill")
            await shard_admin.carry_out(pool, split)
        await asyncio.sleep(every_s)
    return queued


def plan(count: int) -> list[Send]:
    """Return `count` messages to different addresses: most at the hot domain, the others at the rest in turn."""
    hot = round(count * HOT_PART)
    domains = [HOT if number < hot else DOMAINS[1 + number % (len(DOMAINS) - 1)] for number in range(count)]
    random.Random(count).shuffle(domains)
    return [Send(NAME, number, f"reader+{NAME}-{number}@{domain}") for number, domain in enumerate(domains)]


async def _count_moved(pool: asyncpg.Pool, seen: dict[tuple[object, ...], int]) -> None:
    """Record the rows that shard owners move; each entry stays in the table for some seconds after its end."""
    while True:
        for row in await pool.fetch("SELECT shard, domain, began_at, moved FROM shard_rehomings"):
            seen[row["shard"], row["domain"], row["began_at"]] = row["moved"]
        await asyncio.sleep(_LOOK_S)
