"""Drill: every mta process is killed twice while PostgreSQL is away under load.

PostgreSQL stops in one round and hangs in the next. The processes hold outcomes then that no transaction records: their
journals (`mta.outbound.outcome_journal`) must keep them, so that only what was on the wire at a kill may come again.
"""

import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import COMES_BACK_S, until_some
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import faulted, run_on_service
from loadtests.kit.processes import child_pids, connections_of, signal_all
from loadtests.kit.service import Service, ServicePart, make_folder
from mta.outbound.journal_file import SUFFIX
from ops.host.postgres_server import PostgresServer

NAME: Final = "kept-outcomes"
RATE: Final = 600.0  # messages a second: more than is delivered, so that a backlog waits in memory
AWAY_S: Final = 30.0
FIRST_KILL_S: Final = (0.8, 3.0)  # after PostgreSQL has gone, drawn evenly: deliveries go on until the lease has lapsed
SECOND_KILL_S: Final = 20.0  # the processes of then have found no PostgreSQL yet
EVERY_S: Final = 4.0
_POLL_S: Final = 0.05  # journals, connections and processes of others tell no change


def run(order: DrillOrder) -> DrillReport:
    """Stop PostgreSQL or let it hang, and kill all mta processes twice meanwhile."""
    folder = make_folder("waybill-away-")
    server = PostgresServer(folder)
    outages = _Outages(server)

    async def play(service: Service) -> DrillReport:
        report = await faulted(
            service, order, outages.inject, name=NAME, rate=RATE, every_s=EVERY_S, allowed_copies=None,
            parts=[part for part in ServicePart if part is not ServicePart.POSTGRES],
        )  # fmt: skip
        left = len(_journals(service))
        report.allow_copies(AllowedCopies(sum(outages.connections), (CopyReason.MTA_KILLED,)))
        report.checks += [
            Check("outcomes were kept at a kill", any(outages.kept), f"{outages.kept} octets"),
            Check("no kept outcome is left", left == 0, f"{left} files"),
        ]
        report.figures["connections open at the kills"] = outages.connections
        report.figures["octets kept at the kills"] = outages.kept
        return report

    try:
        server.start()
        return run_on_service(play, order.settings({"DATABASE_URL": server.url}))
    finally:
        server.end()
        shutil.rmtree(server.paths.base, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


class _Outages:
    """The fault: PostgreSQL is away for `AWAY_S`. Counts what every kill of the mta processes met."""

    def __init__(self, server: PostgresServer) -> None:
        self.connections: list[int] = []
        self.kept: list[int] = []
        self._server = server
        self._round = 0

    def inject(self, service: Service, rng: random.Random) -> str:
        """Begin an outage, kill the mta processes twice, end the outage; return its description."""
        _until_settled(service)
        self._round += 1
        hangs = self._round % 2 == 0
        began = time.monotonic()
        stopped = self._hang() if hangs else self._stop()
        try:
            # The outage has a length, and the kills their moments in it: nothing to wait for.
            time.sleep(rng.uniform(*FIRST_KILL_S))
            self._kill_all(service)
            time.sleep(max(0.0, began + SECOND_KILL_S - time.monotonic()))
            self._kill_all(service)
            time.sleep(max(0.0, began + AWAY_S - time.monotonic()))
        finally:
            if hangs:
                signal_all(stopped, signal.SIGCONT)
            else:
                self._server.start()
        return f"postgres {'hung' if hangs else 'stopped'} for {time.monotonic() - began:.0f} s"

    def _stop(self) -> list[int]:
        self._server.end()
        return []

    def _hang(self) -> list[int]:
        pid = self._server.pid
        assert pid is not None
        stopped = [pid, *child_pids(pid)]
        signal_all(stopped, signal.SIGSTOP)
        return stopped

    def _kill_all(self, service: Service) -> None:
        """Stop all mta processes, count their connections, and kill them."""
        pids = until_some(service, ServicePart.MTA)
        signal_all(pids, signal.SIGSTOP)
        opened = 0
        for pid in pids:
            with suppress(OSError):
                opened += len(connections_of(pid, service.sink_port))
        self.connections.append(opened)
        self.kept.append(sum(file.stat().st_size for file in _journals(service)))
        signal_all(pids, signal.SIGKILL)


def _journals(service: Service) -> list[Path]:
    return list((service.state / "mta").glob(f"*{SUFFIX}"))


def _until_settled(service: Service) -> None:
    """Wait until the processes have settled what those before them kept, and deliver again."""
    ends = time.monotonic() + COMES_BACK_S
    while time.monotonic() < ends and (_journals(service) or not _delivering(service)):
        time.sleep(_POLL_S)


def _delivering(service: Service) -> bool:
    return any(connections_of(pid, service.sink_port) for pid in service.pids(ServicePart.MTA))
