"""Drills of store failover: a Redis Cluster, a stale Redis replica, a PostgreSQL replica that is promoted.

The servers run on loopback and unix sockets, and the service gets their URLs.
"""

import asyncio
import random
import signal
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Final, Protocol

from redis.crc import key_slot

from engine.delivery.partition import hint_stream
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import SendClient
from loadtests.drill.postgres_pair import PostgresPair, postgres_pair
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import NO_COPIES, ON_THE_WIRE, faulted, planned_client, run_on_service
from loadtests.drill.valkey_servers import (
    NODE_TIMEOUT_MS,
    WATCHED,
    Sentinel,
    Valkey,
    form_cluster,
    linked,
    move_slot,
    sentinel_url,
    until,
    valkey_servers,
    watched_servers,
)
from loadtests.kit.service import Service, ServicePart

NOTICED_S: Final = 1.0  # until the operator notices the dead primary
BEHIND_S: Final = 1.5  # how long a replica is cut off before it is promoted
BACK_S: Final = 3.0  # time for which the old primary runs beside its successor
EVERY_S: Final = 4.0  # from one round's end to the next one's beginning, on average
_WAIT_S: Final = 60.0
_OURS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'waybill%'"
# Without the sessions that only check which server is the primary.
_STAYING = f"{_OURS} AND backend_start < clock_timestamp() - interval '0.5 s'"
_CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'waybill%'"


def redis_cluster(order: DrillOrder) -> DrillReport:
    """Restart a primary, move slots, and replace a dead primary by its replica, in turn."""
    with valkey_servers(4, clustered=True) as servers:
        form_cluster(servers[:3], servers[3:])
        faults = _ClusterFaults(servers)
        url = "redis+cluster://" + ",".join(one.address for one in servers[:3])
        return drilled("redis-cluster", order, faults, ("REDIS_URL", url), ServicePart.VALKEY)


def redis_failover(order: DrillOrder) -> DrillReport:
    """Promote a replica that lags behind when its primary dies."""
    with valkey_servers(2) as servers:
        fault = _StalePromotion(*servers)
        url = "redis://" + ",".join(one.address for one in servers)
        return drilled("redis-failover", order, fault, ("REDIS_URL", url), ServicePart.VALKEY)


def redis_sentinel(order: DrillOrder) -> DrillReport:
    """Let Sentinel replace a killed primary, a frozen one and one that is retired, in turn."""
    with watched_servers() as (servers, sentinels):
        faults = _SentinelFailovers(servers, sentinels)
        return drilled("redis-sentinel", order, faults, ("REDIS_URL", sentinel_url(sentinels)), ServicePart.VALKEY)


def postgres_failover(order: DrillOrder) -> DrillReport:
    """Kill the primary, promote the synchronous replica, and restart the old primary for a while."""
    with postgres_pair() as servers:
        fault = _Promotion(servers)

        report = drilled(
            "postgres-failover", order, fault, ("DATABASE_URL", servers.url), ServicePart.POSTGRES,
            AllowedCopies.each(order.rounds, ON_THE_WIRE, CopyReason.POSTGRES_ENDED),
        )  # fmt: skip
        report.checks += [
            Check("a restarted old primary gets no session", fault.strays == 0, f"{fault.strays}"),
            Check("every promotion was followed by new sessions", min(fault.followed) > 0, f"{fault.followed}"),
        ]
        return report


class StoreFaults(Protocol):
    """A sequence of faults. `mended` holds the times (wall clock) at which the service could continue."""

    mended: list[float]

    def next(self, service: Service, rng: random.Random) -> str:
        """Inject the fault of the next round and return its description."""


class _ClusterFaults:
    """The faults of a Redis Cluster, in turn."""

    def __init__(self, servers: list[Valkey]) -> None:
        self.mended: list[float] = []
        self._primaries, self._replica = servers[:3], servers[3]
        self._round = 0

    def next(self, service: Service, rng: random.Random) -> str:
        """Inject the fault of the next round and return its description."""
        turn = self._round % 3
        self._round += 1
        return (self._restart, self._move, self._elect)[turn](service, rng)

    def _restart(self, service: Service, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        victim = rng.choice(self._primaries[1:])
        victim.kill()
        time.sleep(2 * NODE_TIMEOUT_MS / 1_000)
        victim.start()
        self.mended.append(time.time())
        return f"primary {victim.pid} dead and back"

    def _move(self, service: Service, rng: random.Random) -> str:
        """Move eight slots that are in use to other primaries."""
        moved = 0
        for shard in rng.sample(range(service.settings.shards), 8):
            slot = key_slot(hint_stream(shard).encode())
            source = next((one for one in self._primaries if _has(one, slot)), None)
            if source is not None:
                target = rng.choice([one for one in self._primaries if one is not source])
                moved += move_slot(slot, source, target)
        return f"8 slots moved with {moved} keys"

    def _elect(self, service: Service, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        """Kill the first primary and wait until its replica is elected."""
        dead, successor = self._primaries[0], self._replica
        dead.kill()
        until(lambda: successor.info("role") == "master", _WAIT_S, "no replica was elected")
        self.mended.append(time.time())
        dead.start()
        until(lambda: linked(dead), _WAIT_S, "the old primary did not follow the new one")
        self._primaries[0], self._replica = successor, dead
        return f"primary {dead.pid} replaced by its replica"


class _SentinelFailovers:
    """Three reasons for a failover, in turn."""

    def __init__(self, servers: list[Valkey], sentinels: list[Sentinel]) -> None:
        self.mended: list[float] = []
        self._servers = servers
        self._sentinels = sentinels
        self._round = 0

    def next(self, service: Service, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        """Make Sentinel promote a replica; the old primary follows it at the end."""
        primary = next(one for one in self._servers if one.info("role") == "master")
        turn = self._round % 3
        self._round += 1
        began = time.monotonic()
        if turn == 0:
            primary.kill()
        elif turn == 1:
            primary.signal(signal.SIGSTOP)
        else:
            rng.choice(self._sentinels).command("SENTINEL", "FAILOVER", WATCHED)
        others = [one for one in self._servers if one is not primary]
        until(lambda: any(one.info("role") == "master" for one in others), _WAIT_S, "no replica was promoted")
        self.mended.append(time.time())
        took_s = time.monotonic() - began
        if turn == 0:
            primary.start()
        elif turn == 1:
            primary.signal(signal.SIGCONT)
        until(lambda: _follows(primary), _WAIT_S, "the old primary did not follow the new one")
        return f"primary {('killed', 'frozen', 'retired')[turn]}, a replica promoted after {took_s:.1f} s"


class _StalePromotion:
    """Swaps primary and replica in each round, with a replica that lags behind."""

    def __init__(self, primary: Valkey, replica: Valkey) -> None:
        self.mended: list[float] = []
        self._primary, self._replica = primary, replica
        self._follow()

    def next(self, service: Service, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        """Cut the replica off, kill the primary and promote the replica; the old primary becomes the replica."""
        self._replica.command("REPLICAOF", "127.0.0.1", 1)  # an absent primary: the replica keeps its data
        time.sleep(BEHIND_S)
        missing = int(self._primary.info("master_repl_offset")) - int(self._replica.info("master_repl_offset"))
        self._primary.kill()
        time.sleep(NOTICED_S)
        self._replica.command("REPLICAOF", "NO", "ONE")
        self.mended.append(time.time())
        self._primary, self._replica = self._replica, self._primary
        self._replica.start()
        self._follow()
        return f"a replica promoted that lacked {missing} bytes"

    def _follow(self) -> None:
        self._replica.command("REPLICAOF", "127.0.0.1", self._primary.port)
        until(lambda: linked(self._replica), _WAIT_S, "the replica did not follow")


class _Promotion:
    """Promotes the PostgreSQL replica in each round.

    `strays` counts sessions of the service on old primaries, `followed` those on new primaries after each promotion.
    """

    def __init__(self, servers: PostgresPair) -> None:
        self.mended: list[float] = []
        self._servers = servers
        self.strays = 0
        self.followed: list[int] = []

    def next(self, service: Service, rng: random.Random) -> str:  # noqa: ARG002 - one shape for all
        """Kill, promote, restart the old primary, end all sessions so that they reconnect, and rejoin."""
        servers = self._servers
        servers.primary.kill()
        time.sleep(NOTICED_S)
        began = time.monotonic()
        servers.fail_over()
        self.mended.append(time.time())
        took_s = time.monotonic() - began
        servers.replica.start()
        servers.primary.query(_CUT_OFF)
        ends = time.monotonic() + BACK_S
        while time.monotonic() < ends:
            self.strays = max(self.strays, int(servers.replica.query(_STAYING)))
        self.followed.append(int(servers.primary.query(_OURS)))
        servers.replica.kill()
        servers.rejoin()
        return f"primary killed, replica promoted in {took_s:.1f} s"


def _follows(server: Valkey) -> bool:
    return linked(server) and server.info("role") == "slave"


def _has(server: Valkey, slot: int) -> bool:
    return bool(server.command("CLUSTER", "COUNTKEYSINSLOT", slot))


def drilled(
    name: str,
    order: DrillOrder,
    faults: StoreFaults,
    setting: tuple[str, str],
    outside: ServicePart,
    allowed_copies: AllowedCopies = NO_COPIES,
    examine: Callable[[DrillReport, SendClient], None] | None = None,
) -> DrillReport:
    """Run the faults on a service that gets one store from `setting`, and so has no process `outside` of its own.

    `examine` may add checks and figures to the report.
    """
    parts = [part for part in ServicePart if part is not outside]

    async def play(service: Service) -> DrillReport:
        client = planned_client(service, order, name)
        report = await faulted(
            service, order, faults.next, name=name, client=client, every_s=EVERY_S,
            allowed_copies=allowed_copies, parts=parts,
        )  # fmt: skip
        answers = sorted(send.answered_at for send in client.sends if send.message_id is not None)
        waits = [_after(answers, mended) for mended in faults.mended]
        if waits:  # a round takes longer than its fault: the verdict's gaps are those after the round
            longest = max((later - one for one, later in pairwise(answers)), default=0.0)
            report.recovery_s = max(report.recovery_s, *waits)
            report.figures["from the promotion or return to the next 202, s"] = [round(wait, 2) for wait in waits]
            report.figures["longest time without a 202 in all, s"] = round(longest, 2)
        if examine is not None:
            await asyncio.to_thread(examine, report, client)
        return report

    return run_on_service(play, order.settings(dict([setting])))


def _after(answers: list[float], mended: float) -> float:
    at = bisect_left(answers, mended)
    return answers[at] - mended if at < len(answers) else float("inf")
