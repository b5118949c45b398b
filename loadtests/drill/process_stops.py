"""Drills that stop mta processes for longer than their lease, and find the cause of each duplicate copy.

The sink records the client port of every arrival, and the open connections of a stopped process are known. So each copy
can be assigned: the new owner sent it because the message was on the wire or not settled at the stop, which is allowed,
or the stopped process sent it after it continued, which is an error.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from loadtests.drill.arrivals import arrived_at
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import DOMAINS, Send
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.faults import stop_mta
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import ON_THE_WIRE, faulted, on_network, on_service, planned_client
from loadtests.drill.site_sinks import SinkSites
from loadtests.kit.processes import connections_of
from loadtests.kit.service import Service
from ops.local.sink_store import entries

_ANEW_S: Final = 0.25  # before a process that goes on could have got anything anew
_SETTLED_S: Final = 2.0  # after its arrival a message is history
_MAX_TOLD: Final = 3
_DOT_S: Final = 0.1
_FENCED: Final = {"MTA_WORKERS": "2", "LEASE_S": "3", "SHARD_RULES": "manual"}


@on_service()
async def pause_mta(service: Service, order: DrillOrder) -> DrillReport:
    """Stop mta processes for twice their lease."""
    return await _stopped(service, order, "pause-mta", ProcessStops(), None)


@on_network(_FENCED)
async def fence(service: Service, network: DrillNetwork, order: DrillOrder) -> DrillReport:
    """Stop mta processes while mail is on the wire: with a short lease and slow mail servers."""
    store = service.state.parent / "mail"
    domains = [f"d{number}.test" for number in range(DOMAINS)]
    async with SinkSites(domains, store, network.point, port=service.sink_port, delay_s=_DOT_S):
        return await _stopped(service, order, "fence", ProcessStops(_DOT_S), store)


async def _stopped(
    service: Service, order: DrillOrder, name: str, stops: "ProcessStops", store: Path | None
) -> DrillReport:
    client = planned_client(service, order, name)
    copies = AllowedCopies.each(order.rounds, ON_THE_WIRE, CopyReason.MTA_CUT_OFF)
    report = await faulted(
        service, order, stops.inject, name=name, client=client, allowed_copies=copies, store=store
    )  # fmt: skip
    report.checks.append(stops.check_copies(store or service.sink, client.sends))
    return report


class DuplicateCause(StrEnum):
    """The cause of a second copy."""

    ON_THE_WIRE = "on the wire"  # sent before the stop, taken by its server during it
    UNSETTLED = "delivered but not settled"
    WRONG = "sent after the lease was lost"
    OTHER = "for another reason"


class ProcessStop(Struct, frozen=True):
    """A stop, by the wall clock; `ports` are the local ports of the process's connections at that time."""

    began: float
    ended: float
    ports: frozenset[int]


class ArrivedCopy(Struct, frozen=True):
    """A copy: arrival time by the wall clock, and the client's port."""

    at: float
    port: int


class ProcessStops:
    """A fault that stops processes and records each stop. A final dot takes the mail servers `dot_s`."""

    def __init__(self, dot_s: float = 0.0) -> None:
        self.made: list[ProcessStop] = []
        self._dot_s = dot_s

    def inject(self, service: Service, rng: random.Random) -> str:
        """Stop one mta process and continue it."""
        found: list[tuple[float, frozenset[int]]] = []
        port = service.sink_port
        pid, ended = stop_mta(service, rng, lambda stopped: found.append((time.time(), connections_of(stopped, port))))
        [(began, ports)] = found
        self.made.append(ProcessStop(began, ended, ports))
        return f"mta {pid} stopped"

    def check_copies(self, store: Path, sends: Iterable[Send]) -> Check:
        """Check the cause of every second copy in a sink's store."""
        own, came = {send.key for send in sends}, defaultdict[str, list[ArrivedCopy]](list)
        for one in entries(store):
            if one.test_id in own:
                came[one.test_id].append(ArrivedCopy(arrived_at(one), one.port))
        why = {
            test_id: cause_of_copies(copies, self.made, self._dot_s) for test_id, copies in came.items() if copies[1:]
        }
        counts = Counter(why.values())
        wrong = [test_id for test_id, one in why.items() if one is DuplicateCause.WRONG]
        found = ", ".join(f"{counts[one]} {one}" for one in DuplicateCause)
        summary = "; ".join(
            f"{test_id} {_description(came[test_id], self.made[0].began)}" for test_id in wrong[:_MAX_TOLD]
        )
        return Check("no process sends after it has lost its lease", not wrong, f"{found} {summary}".strip())


def cause_of_copies(copies: Sequence[ArrivedCopy], stops: Iterable[ProcessStop], dot_s: float) -> DuplicateCause:
    """Return the worst cause of the copies of one message.

    A copy over a connection of a stopped process, after it continued and before it could have claimed anything new, is
    that process's error.
    """
    found = DuplicateCause.OTHER
    for stop in stops:
        own = [one.at for one in copies if one.port in stop.ports]
        if any(stop.ended < at <= stop.ended + _ANEW_S + dot_s for at in own):
            return DuplicateCause.WRONG
        if any(stop.began < at <= stop.ended for at in own):
            found = DuplicateCause.ON_THE_WIRE
        elif found is DuplicateCause.OTHER and any(stop.began - _SETTLED_S <= at <= stop.began for at in own):
            found = DuplicateCause.UNSETTLED
    return found


def _description(copies: Iterable[ArrivedCopy], began: float) -> str:
    return ", ".join(f"{one.at - began:+.3f} s over {one.port}" for one in copies)
