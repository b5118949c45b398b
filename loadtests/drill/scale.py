"""`ops drill scale`: delivering processes come and go while thousands of messages wait, and every message is counted.

Messages for a few domains, most of them for one; every ten seconds there is another number of mta processes: 2, 4, 1,
3. The hot domain is split on the way and merged again. In the first round processes end as a deploy ends them, and
nothing may come twice; in every second one they are killed, and what had its final dot on the wire may. The mail
servers are the drill's own, one for each domain: no more connections than the site's limit may be open there at once,
whoever opened them.
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
from loadtests.drill.faults import Struck
from loadtests.drill.report import Check, DrillReport, combined
from loadtests.drill.run import ON_THE_WIRE, counted
from loadtests.drill.sends import Send, SendClient
from loadtests.drill.service import Service
from loadtests.drill.sinks import SinkSites
from loadtests.drill.stage import first_access, played_in_world
from loadtests.drill.verdict import DrillVerdict
from loadtests.drill.world import DrillWorld
from ops import admin, process_specs, shards
from ops.supervise import ProcessSpec

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
    """Row 17; each round has a service of its own, and every second one kills."""
    return combined(NAME, [_round(order, number) for number in range(order.rounds)])


def _round(order: DrillOrder, number: int) -> DrillReport:
    how = signal.SIGKILL if number % 2 else signal.SIGTERM

    async def play(service: Service, world: DrillWorld) -> DrillReport:
        with Mtas(service, how) as mtas:
            return await _played(service, world, mtas, order.messages)

    report = played_in_world(play, SETTINGS)
    report.drill = f"round {number + 1}, {how.name}"
    return report


class Mtas:
    """Delivering processes beside those of the service, on its state folder and with its settings; they end by the
    signal `how`."""

    def __init__(self, service: Service, how: signal.Signals) -> None:
        self.killed: list[Struck] = []
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

    def be(self, count: int) -> None:
        """Let there be so many, the service's own one counted."""
        names = [f"mta-{number}" for number in range(2, count + 1)]
        gone = {name: self._running.pop(name) for name in list(self._running) if name not in names}
        for name, process in gone.items():
            if self.how is signal.SIGKILL:
                self.killed.append(Struck(f"{name} killed", time.time(), time.time()))
            process.send_signal(self.how)
        for process in gone.values():
            process.wait(_STOP_S)
        for name in names:
            if name not in self._running:
                self._running[name] = _started(self._specs[name])


def _started(spec: ProcessSpec) -> "subprocess.Popen[bytes]":
    with spec.log.open("ab") as log:
        return subprocess.Popen(
            spec.argv, env=dict(spec.env), cwd=spec.cwd, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


async def _played(service: Service, world: DrillWorld, mtas: Mtas, messages: int) -> DrillReport:
    access, store = first_access(service), service.state.parent / "mail"
    client = SendClient(service.base_url, access, plan(messages))
    sites = SinkSites(DOMAINS, store, world.point, port=service.sink_port, delay_s=QUEUEING_S)
    moved: dict[tuple[object, ...], int] = {}
    async with sites, admin.opened(service.settings) as pool:
        counting = asyncio.create_task(_count_moved(pool, moved))
        await client.run()
        sites.pace(DOT_S)
        queued = await _changes(service, mtas, pool, EVERY_S * min(1.0, messages / MESSAGES))

        async def also(_: DrillVerdict) -> list[Check]:
            return [
                Check("mail waits at every change", min(queued) > 0, ", ".join(map(str, queued))),
                Check("windows hold for all processes together", sites.most_open <= LIMIT,
                      f"{sites.most_open} connections to a site at the most, {LIMIT} allowed"),
            ]  # fmt: skip

        copies = len(mtas.killed) * ON_THE_WIRE
        report = await counted(
            service, access, client, mtas.killed, name=NAME, most_copies=copies, also=also, store=store
        )
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting
    report.figures |= {
        "numbers of processes": COUNTS,
        "rows brought to other shards": sum(moved.values()),
    }
    return report


async def _changes(service: Service, mtas: Mtas, pool: asyncpg.Pool, every_s: float) -> list[int]:
    """How much mail was queued at each of them."""
    queued = []
    for number, count in enumerate(COUNTS):
        queued.append(int(await pool.fetchval("SELECT count(*) FROM queue")))
        await asyncio.to_thread(mtas.be, count)
        if number in (1, len(COUNTS) - 1):
            parts = PARTS if number == 1 else 1
            split = await shards.plan_split(pool, service.settings, HOT, parts, why="drill")
            await shards.carry_out(pool, split)
        await asyncio.sleep(every_s)
    return queued


def plan(count: int) -> list[Send]:
    """So many messages, each to an address of its own: most for the hot domain, the others in turn."""
    hot = round(count * HOT_PART)
    domains = [HOT if number < hot else DOMAINS[1 + number % (len(DOMAINS) - 1)] for number in range(count)]
    random.Random(count).shuffle(domains)
    return [Send(NAME, number, f"reader+{NAME}-{number}@{domain}") for number, domain in enumerate(domains)]


async def _count_moved(pool: asyncpg.Pool, seen: dict[tuple[object, ...], int]) -> None:
    """Keep what the owners say of the rows they bring elsewhere; each errand stands for some seconds after its end."""
    while True:
        for row in await pool.fetch("SELECT shard, domain, began_at, moved FROM shard_rehomings"):
            seen[row["shard"], row["domain"], row["began_at"]] = row["moved"]
        await asyncio.sleep(_LOOK_S)
