"""`ops drill scale`: delivering processes come and go while thousands of messages wait, and every message is counted.

Ten thousand messages for a few domains, most of them for one; every ten seconds there is another number of mta
processes: 2, 4, 1, 3. The hot domain is split on the way and merged again. In the first round processes end as a deploy
ends them, and nothing may come twice; in the second they are killed, and what had its final dot on the wire may. The
mail servers are the drill's own, one for each domain: no more connections than the site's limit may be open there at
once, whoever opened them.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

import asyncpg
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from engine.base import ids
from engine.base.settings import HostPort
from ops import fleet, operate, shards
from ops.drill.run import first_access, until_empty
from ops.drill.sends import Client, Send
from ops.drill.service import Service, clear, free_ports, make_folder
from ops.drill.sinks import Sites
from ops.drill.verdict import Kill, Verdict, judge
from ops.supervise import ProcessSpec

COUNTS: Final = (2, 4, 1, 3)
EVERY_S: Final = 10.0
HOT: Final = "hot.test"
DOMAINS: Final = (HOT, *(f"cool{number}.test" for number in range(7)))
HOT_PART: Final = 0.6
PARTS: Final = 4
LIMIT: Final = 6  # connections to a site, of all processes together
DOT_S: Final = 0.03  # how long a mail server thinks about a message: so that mail waits
QUEUEING_S: Final = 2.0  # the same while the queue is being filled, before the first change
SETTINGS: Final = {
    "RETRY_LADDER_S": "1,2,4,8", "REQUEST_RATE": "100000", "MTA_WORKERS": "1", "SITE_CONNECTIONS": str(LIMIT),
    "SHARD_RULES": "manual",
}  # fmt: skip
_STOP_S: Final = 40.0
_LOOK_S: Final = 0.3


class Round(Struct, kw_only=True):
    """One round. `ended`: the signal that processes end by."""

    ended: str
    queued: int  # when the first change began
    changes: int
    most_open: int  # connections to one site at once
    limit: int
    rows_moved: int  # to other shards by the split and the merge
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Nothing lost, the limit kept, and nothing twice where nobody was killed."""
        copies = self.verdict.copies == 0 or self.ended == "SIGKILL"
        return self.verdict.passed and self.most_open <= self.limit and copies


def run(messages: int, rounds: int, *, as_json: bool) -> int:
    """Start a service of its own for each round and count; 0 when all is well. Every second round kills."""
    if sys.platform != "linux":
        print("ops drill finds its processes through /proc: it runs on Linux.", file=sys.stderr)
        return 1
    found = [drill_once(messages, kill=bool(number % 2)) for number in range(rounds)]
    if as_json:
        shown = [msgspec.to_builtins(one) | {"passed": one.passed} for one in found]
        print(msgspec.json.format(msgspec.json.encode(shown)).decode())
    else:
        _show(found)
    return 0 if all(one.passed for one in found) else 1


def drill_once(messages: int, *, kill: bool, every_s: float = EVERY_S) -> Round:
    """One round on a fresh service, with pauses of `every_s` between changes."""
    folder = make_folder()
    try:
        with service_with_sites(folder, SETTINGS) as (service, dns_port), Mtas(service, dns_port) as mtas:
            found = asyncio.run(_round(service, mtas, folder / "mail", messages, kill=kill, every_s=every_s))
            mtas.stop_all()
            service.stop()
            found.verdict.left_behind = len(service.everything())
            return found
    finally:
        clear(folder)


@contextmanager
def service_with_sites(folder: Path, settings: dict[str, str]) -> Iterator[tuple[Service, int]]:
    """A started service that asks a DNS responder of the drill's own, and that one's port. Its first start asks the
    service's own, which knows the records of the first account's domain."""
    with Service(folder, settings) as first:
        first.stop()
    [dns_port] = free_ports(1)
    with Service(folder, settings | {"DNS_SERVERS": f"127.0.0.1:{dns_port}"}) as service:
        yield service, dns_port


class Mtas:
    """Delivering processes beside those of the service, on its state folder and with its settings."""

    def __init__(self, service: Service, dns_port: int) -> None:
        self.dns_port = dns_port
        settings = msgspec.structs.replace(
            service.settings, mta_workers=max(COUNTS), dns_servers=(HostPort("127.0.0.1", dns_port),),
            allow_private_mx=True,
        )  # fmt: skip
        self._specs = {spec.name: spec for spec in fleet.processes(settings) if spec.name.startswith("mta-")}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def be(self, count: int, *, kill: bool) -> list[Kill]:
        """Let there be so many, the service's own one counted; says who was killed."""
        names = [f"mta-{number}" for number in range(2, count + 1)]
        killed = []
        for name in [name for name in self._running if name not in names]:
            killed.append(Kill(name, time.time()))
            self._running[name].send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        for name in [name for name in self._running if name not in names]:
            self._running.pop(name).wait(_STOP_S)
        for name in names:
            if name not in self._running:
                self._running[name] = _started(self._specs[name])
        return killed if kill else []

    def stop_all(self) -> None:
        """As a deploy does."""
        self.be(1, kill=False)


def _started(spec: ProcessSpec) -> "subprocess.Popen[bytes]":
    with spec.log.open("ab") as log:
        return subprocess.Popen(
            spec.argv, env=dict(spec.env), cwd=spec.cwd, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


async def _round(service: Service, mtas: Mtas, store: Path, messages: int, *, kill: bool, every_s: float) -> Round:
    settings, access = service.settings, first_access(service)
    assert settings.database_url is not None
    sends = plan(messages, "scale")
    client = Client(service.base_url, access, sends)
    sites = Sites(DOMAINS, store, port=settings.sink_port, dns_port=mtas.dns_port, delay_s=QUEUEING_S)
    began, kills, moved = time.monotonic(), list[Kill](), dict[tuple[object, ...], int]()
    async with sites, operate.opened(settings) as pool:
        counting = asyncio.create_task(_count_moved(pool, moved))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.run())
            await client.reached(messages)
            queued = await _waiting(pool)
            sites.pace(DOT_S)
            for number, count in enumerate(COUNTS):
                kills += await asyncio.to_thread(mtas.be, count, kill=kill)
                if number in (1, len(COUNTS) - 1):
                    parts = PARTS if number == 1 else 1
                    split = await shards.plan_split(pool, settings, HOT, parts, why="drill")
                    await shards.carry_out(pool, split)
                await asyncio.sleep(every_s)
        await until_empty(settings.database_url)
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting
    verdict = await judge(
        settings.database_url, store, ids.parse_id(ids.Kind.ACCOUNT, access.account), sends, kills,
        drill="scale", took_s=time.monotonic() - began,
    )  # fmt: skip
    return Round(
        ended="SIGKILL" if kill else "SIGTERM", queued=queued, changes=len(COUNTS), most_open=sites.most_open,
        limit=LIMIT, rows_moved=sum(moved.values()), verdict=verdict,
    )  # fmt: skip


def plan(count: int, run_name: str) -> list[Send]:
    """So many messages, each to an address of its own: most for the hot domain, the others in turn."""
    hot = round(count * HOT_PART)
    domains = [HOT if number < hot else DOMAINS[1 + number % (len(DOMAINS) - 1)] for number in range(count)]
    random.Random(count).shuffle(domains)
    return [Send(run_name, number, f"reader+{run_name}-{number}@{domain}") for number, domain in enumerate(domains)]


async def _waiting(pool: asyncpg.Pool) -> int:
    return int(await pool.fetchval("SELECT count(*) FROM queue"))


async def _count_moved(pool: asyncpg.Pool, seen: dict[tuple[object, ...], int]) -> None:
    """Keep what the owners say of the rows they bring elsewhere; each errand stands for some seconds after its end."""
    while True:
        for row in await pool.fetch("SELECT shard, domain, began_at, moved FROM shard_rehomings"):
            seen[row["shard"], row["domain"], row["began_at"]] = row["moved"]
        await asyncio.sleep(_LOOK_S)


def _show(found: list[Round]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("ended by", "sent", "queued", "delivered", "lost", "copies", "most open", "limit", "rows moved",
                  "longest wait s", "took s"):  # fmt: skip
        table.add_column(title, justify="left" if title == "ended by" else "right")
    for one in found:
        verdict = one.verdict
        table.add_row(
            one.ended, str(verdict.sent), str(one.queued), str(verdict.delivered), str(verdict.lost),
            str(verdict.copies), str(one.most_open), str(one.limit), str(one.rows_moved),
            f"{verdict.longest_wait_s:.1f}", f"{verdict.took_s:.1f}",
        )  # fmt: skip
    console = Console(highlight=False, emoji=False, soft_wrap=True, width=150)
    console.print(table)
    for one in found:
        if not one.passed:
            console.print(f"FAILED ({one.ended}):", msgspec.to_builtins(one), markup=False)
