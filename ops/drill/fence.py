"""`ops drill fence`: a delivering process stands still for twice its lease and must not touch what it has lost then.

The mail servers are the drill's own and know over which connection every message came. So it is seen of each second
copy who brought it: the heir, because the message had its final dot on the wire, or was not settled yet, when its
process was stopped; or the process that was stopped, as it went on, which is the one thing that must not be.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from engine.base import ids
from ops.drill.run import first_access, until_empty
from ops.drill.scale import DOMAINS, Mtas, plan, service_with_sites
from ops.drill.sends import Client
from ops.drill.service import Part, Service, clear, make_folder
from ops.drill.sinks import Arrival, Sites
from ops.drill.verdict import Kill, Verdict, judge

LEASES: Final = 2.0  # that it stands still
DOT_S: Final = 0.005
SETTINGS: Final = {
    "RETRY_LADDER_S": "1,2,4,8", "REQUEST_RATE": "100000", "MTA_WORKERS": "2", "LEASE_S": "3",
    "SHARD_RULES": "manual",
}  # fmt: skip
PAUSE_S: Final = 0.05  # between two sends of each client: mail flows all the while
_APART_S: Final = 2.0
_ANEW_S: Final = 0.25


class Stop(Struct, frozen=True):
    """One stop, by the loop's clock; `ports` are those of the connections that the process had open then."""

    pid: int
    began: float
    ended: float
    ports: frozenset[int]


class Found(Struct, kw_only=True):
    """What came of it. `on_the_wire`: messages that came twice and had been brought, or were being brought, when their
    process was stopped; `late`: messages of which a stopped process brought a copy as it went on."""

    stops: int
    on_the_wire: int
    late: int
    examples: list[str]
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Nothing lost, and nothing sent by who had no right to."""
        return self.verdict.passed and self.late == 0


def run(messages: int, rounds: int, *, as_json: bool) -> int:
    """Stop one of two delivering processes so many times under load; 0 when all is well."""
    if sys.platform != "linux":
        print("ops drill finds its processes through /proc: it runs on Linux.", file=sys.stderr)
        return 1
    found = drill_once(messages, rounds)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(found) | {"passed": found.passed})).decode())
    else:
        _show(found)
    return 0 if found.passed else 1


def drill_once(messages: int, rounds: int) -> Found:
    """On a fresh service."""
    folder = make_folder()
    try:
        with service_with_sites(folder, SETTINGS) as (service, dns_port), Mtas(service, dns_port) as mtas:
            found = asyncio.run(_drill(service, mtas, folder / "mail", messages, rounds))
            service.stop()
            found.verdict.left_behind = len(service.everything())
            return found
    finally:
        clear(folder)


async def _drill(service: Service, mtas: Mtas, store: Path, messages: int, rounds: int) -> Found:
    settings, access = service.settings, first_access(service)
    assert settings.database_url is not None
    sends, began = plan(messages, "fence"), time.monotonic()
    client = Client(service.base_url, access, sends, PAUSE_S)
    stops: list[Stop] = []
    kills: list[Kill] = []
    sites = Sites(DOMAINS, store, port=settings.sink_port, dns_port=mtas.dns_port, delay_s=DOT_S)
    async with sites:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.run())
            for number in range(rounds):
                await client.reached(round(messages * (number + 0.5) / (rounds + 1)))
                pids = service.pids(Part.MTA)
                kills.append(Kill(f"mta {pids[number % len(pids)]} stopped", time.time()))
                stops.append(await _stop(pids[number % len(pids)], settings.lease_s * LEASES, settings.sink_port))
                await asyncio.sleep(_APART_S)
        await until_empty(settings.database_url)
    account = ids.parse_id(ids.Kind.ACCOUNT, access.account)
    verdict = await judge(
        settings.database_url, store, account, sends, kills, drill="fence", took_s=time.monotonic() - began
    )
    return _judged(stops, sites.arrivals, verdict)


async def _stop(pid: int, seconds: float, port: int) -> Stop:
    loop = asyncio.get_running_loop()
    os.kill(pid, signal.SIGSTOP)
    began = loop.time()
    try:
        ports = await asyncio.to_thread(connections_of, pid, port)
        await asyncio.sleep(seconds)
    finally:
        ended = loop.time()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return Stop(pid, began, ended, ports)


def connections_of(pid: int, port: int) -> frozenset[int]:
    """Local ports of the process's established connections to `port` (proc(5), net/tcp)."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[9] in inodes and int(words[2].partition(":")[2], 16) == port:
            found.add(int(words[1].partition(":")[2], 16))
    return frozenset(found)


def _judged(stops: list[Stop], arrivals: Iterable[Arrival], verdict: Verdict) -> Found:
    copies: dict[str, list[Arrival]] = {}
    for one in arrivals:
        copies.setdefault(one.test_id, []).append(one)
    twice = {test_id: came for test_id, came in copies.items() if len(came) > 1}
    late = {test_id: [one for one in came if _after_the_stop(one, stops)] for test_id, came in twice.items()}
    late = {test_id: came for test_id, came in late.items() if came}
    examples = [
        f"{test_id}: " + ", ".join(f"{one.at - stops[0].began:+.3f} s over {one.port}" for one in twice[test_id])
        for test_id in list(late)[:5]
    ]
    return Found(
        stops=len(stops), on_the_wire=len(twice) - len(late), late=len(late), examples=examples, verdict=verdict
    )


def _after_the_stop(one: Arrival, stops: Iterable[Stop]) -> bool:
    """It came over a connection that a process had open when it was stopped, as that went on, and before it could have
    got anything anew. What came while it stood still had left it before."""
    return any(one.port in stop.ports and stop.ended < one.at <= stop.ended + _ANEW_S + DOT_S for stop in stops)


def _show(found: Found) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("stops", "sent", "delivered", "lost", "copies", "on the wire", "sent without the right", "took s"):
        table.add_column(title, justify="right")
    verdict = found.verdict
    table.add_row(
        str(found.stops), str(verdict.sent), str(verdict.delivered), str(verdict.lost), str(verdict.copies),
        str(found.on_the_wire), str(found.late), f"{verdict.took_s:.1f}",
    )  # fmt: skip
    console = Console(highlight=False, emoji=False, soft_wrap=True, width=150)
    console.print(table)
    for line in found.examples:
        console.print(f"  {line}", markup=False)
    if not found.passed:
        console.print("FAILED:", msgspec.to_builtins(verdict), markup=False)
