"""Drill of Patroni: three PostgreSQL servers elect their primary while mail flows, after seven kinds of faults."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from engine.store.database_errors import DRIVER_ERRORS
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import SendClient
from loadtests.drill.patroni_servers import ELECTED_S, TTL_S, PatroniCluster, PatroniNode, patroni_cluster
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import ON_THE_WIRE
from loadtests.drill.stores import drilled
from loadtests.drill.valkey_servers import until
from loadtests.kit.service import Service, ServicePart

LOST_S: Final = TTL_S + 10.0  # without etcd
BACK_S: Final = 5.0  # between a promotion and the return of a frozen primary
_PAUSE_S: Final = 0.1  # between two looks at a server
# Without the sessions that only check which server is the primary.
_SESSIONS: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'waybill%'"
    " AND backend_start < clock_timestamp() - interval '0.5 s'"
)


def run(order: DrillOrder) -> DrillReport:
    """Switch over, crash, cut off and freeze the primary, and take etcd away."""
    programs = order.options.get("postgres")
    with patroni_cluster(None if programs is None else str(programs)) as servers:
        faults = _Failovers(servers)

        def examine(report: DrillReport, client: SendClient) -> None:
            report.figures |= faults.figures
            report.checks += [*faults.checks(), _refused_well(client, faults.without_primary)]

        return drilled(
            "patroni", order, faults, ("DATABASE_URL", servers.url), ServicePart.POSTGRES,
            AllowedCopies.each(order.rounds, ON_THE_WIRE, CopyReason.POSTGRES_ENDED), examine,
        )  # fmt: skip


class _Failovers:
    """The faults, in turn.

    `strays` counts sessions of the service on a server after its demotion. `without_primary` holds the times (wall
    clock) between which no server accepted writes, because the primary had demoted itself.
    """

    def __init__(self, servers: PatroniCluster) -> None:
        self.mended: list[float] = []
        self.strays = 0
        self.stayed: list[bool] = []
        self.without_primary: list[tuple[float, float]] = []
        self.figures: dict[str, object] = {}
        self._servers = servers
        self._round = 0

    def next(self, service: Service, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        """Inject the fault of the next round and return its description."""
        faults = (
            self._switch_over, self._crash, self._lose_host, self._freeze, self._hang, self._lose_etcd, self._demote,
        )  # fmt: skip
        fault = faults[self._round % len(faults)]
        self._round += 1
        done = fault(self._servers.primary(), rng)
        self._servers.until_whole()
        self.strays += sum(int(node.query(_SESSIONS)) for node in self._servers.replicas())
        return done

    def checks(self) -> list[Check]:
        """Return the checks of the servers, after the last fault."""
        histories = [node.histories() for node in self._servers.nodes]
        latest = {max(found, default="") for found in histories}
        forks = [
            name for name in set().union(*histories) if len({found[name] for found in histories if name in found}) > 1
        ]
        return [
            Check("the primary stays while only etcd is away", all(self.stayed), f"{len(self.stayed)} times"),
            Check("a demoted server has no session of the service", self.strays == 0, f"{self.strays}"),
            Check("no two servers began the same timeline", not forks, ", ".join(forks) or "none forked"),
            Check("all servers follow the latest timeline", len(latest) == 1, ", ".join(sorted(latest))),
        ]

    # -- faults --------------------------------------------------------------------------------

    def _switch_over(self, primary: PatroniNode, rng: random.Random) -> str:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._servers.switch_over, primary, rng.choice(self._servers.replicas()))
            took_s = self._promoted(other_than=primary)
            asked.result()
        return f"switchover, promoted after {took_s:.1f} s"

    def _crash(self, primary: PatroniNode, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        primary.kill_postgres()
        until(lambda: not _writable(primary), ELECTED_S, "a killed PostgreSQL still accepts writes")
        took_s = self._promoted()
        return f"PostgreSQL of the primary killed, a primary after {took_s:.1f} s"

    def _lose_host(self, primary: PatroniNode, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        primary.kill()
        took_s = self._promoted(other_than=primary)
        self._servers.start_node(primary)
        return f"Patroni and PostgreSQL of the primary killed, another promoted after {took_s:.1f} s"

    def _freeze(self, primary: PatroniNode, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        primary.signal(signal.SIGSTOP)
        try:
            took_s = self._promoted(other_than=primary)
            time.sleep(BACK_S)
        finally:
            primary.signal(signal.SIGCONT)
        return f"primary frozen, another promoted after {took_s:.1f} s, then continued"

    def _hang(self, primary: PatroniNode, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        """Stop Patroni alone: without a watchdog its PostgreSQL goes on beside its successor."""
        primary.signal(signal.SIGSTOP, postgres=False)
        try:
            took_s = self._promoted(other_than=primary)
            time.sleep(BACK_S)
        finally:
            primary.signal(signal.SIGCONT)
        return f"Patroni of the primary stopped, another promoted after {took_s:.1f} s, then continued"

    def _lose_etcd(self, primary: PatroniNode, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        self._servers.etcd.kill()
        ends = time.monotonic() + LOST_S
        stayed = True
        while time.monotonic() < ends:
            stayed = stayed and _writable(primary)
            time.sleep(_PAUSE_S)
        self.stayed.append(stayed)
        self._servers.etcd.start()
        return f"etcd away for {LOST_S:.0f} s"

    def _demote(self, primary: PatroniNode, rng: random.Random) -> str:
        replica = rng.choice(self._servers.replicas())
        self._servers.etcd.kill()
        replica.kill()
        began = time.monotonic()
        until(lambda: not _writable(primary), ELECTED_S, "the primary was not demoted")
        demoted, after_s = time.time(), time.monotonic() - began
        time.sleep(TTL_S / 2)  # etcd stays away after the demotion: nobody may accept mail meanwhile
        self._servers.etcd.start()
        self._servers.start_node(replica)
        took_s = self._promoted()
        self.without_primary.append((demoted, self.mended[-1]))
        return f"etcd and a replica away, primary demoted after {after_s:.1f} s, a new one {took_s:.1f} s after both"

    def _promoted(self, *, other_than: PatroniNode | None = None) -> float:
        """Wait until a server accepts writes; return after how many seconds."""
        began = time.monotonic()
        others = [node for node in self._servers.nodes if node is not other_than]
        until(lambda: any(_writable(node) for node in others), ELECTED_S, "no server was promoted")
        self.mended.append(time.time())
        return time.monotonic() - began


def _writable(node: PatroniNode) -> bool:
    """Return True if the server accepts writes; takes at least `_PAUSE_S`."""
    time.sleep(_PAUSE_S)
    with suppress(*DRIVER_ERRORS):
        return not node.query("SELECT pg_is_in_recovery()")
    return False


def _refused_well(client: SendClient, times: list[tuple[float, float]]) -> Check:
    """Check that requests that were answered without a primary got 503 with Retry-After."""
    answers = [one for one in client.tried if any(start + 1 < one.at < end for start, end in times)]
    wrong = [one for one in answers if one.status != 503 or not one.retry_after]
    others = "".join(f"; {one.status} {one.text}" for one in wrong[:3])
    found = f"{len(answers) - len(wrong)} of {len(answers)}{others}"
    return Check("without a primary, mail is refused with 503 and Retry-After", not wrong, found)
