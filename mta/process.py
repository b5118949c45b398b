"""A mta process: start, own shards, deliver, drain on SIGTERM, stop.

`python -m mta.process --name mta-1`; settings come from the environment.
"""

import argparse
import asyncio
import functools
import os
import resource
from contextlib import suppress
from pathlib import Path

import asyncpg
import structlog
import uvloop

from engine.base import logs, scheduling
from engine.base.process_names import process_name
from engine.base.server_versions import UnsupportedServer
from engine.base.settings import BadSetting, Settings, load
from engine.delivery.hints import HintReader, WakeListener, WokenShards
from engine.delivery.mx_routes import Router
from engine.sending.settle import DeliveryAttempt, Settler
from engine.store import metrics, service_time, socket_activation, stopping
from engine.store import redis as redis_store
from engine.store.caches import Stamps
from engine.store.database_errors import DatabaseUnavailable
from engine.store.migrate import MigrationError, open_current
from engine.store.postgres import close_pool, open_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration
from engine.store.redis import RedisClient
from engine.store.resolver import Resolver
from engine.store.traces import TRACES
from mta.outbound import poison_guard
from mta.outbound.envelopes import EnvelopeBuilder
from mta.outbound.pipeline import OutboundPipeline
from mta.outbound.poison_guard import PoisonGuard
from mta.outbound.source_ips.addresses import check_sources
from mta.outbound.tls.security import TransportSecurity
from mta.simulator.complaints import MAX_WAITING, ReportRoute, SimulatedComplaints
from mta.simulator.server import Simulator
from shards.member import ShardMember
from shards.ownership import ShardOwnership

ASK_S = 0.05
# Below the processes that accept: a request waits for an answer, mail may wait for milliseconds. Measured on two cores
# at full load and at 750/s: accepted 1,700 → 3,100/s, accept p50 7.3 → 4.8 ms; 10 starved delivery.
NICENESS = 3
SPARE_FILES = 1_024  # beside connections to mail servers: DNS queries, stores, the simulator
END_S = 3.0  # a driver that is cancelled in the middle of a query may take that long

_log = structlog.get_logger("mta")


def main() -> None:
    """Run one mta process."""
    parser = argparse.ArgumentParser(prog="mta.process")
    parser.add_argument("--name", default="mta-1")
    name: str = parser.parse_args().name
    settings = load(os.environ).settings
    try:
        check_sources(settings)
    except BadSetting as error:
        raise SystemExit(str(error)) from None
    logs.configure(name, settings.log_level, settings.state)
    service_time.join(settings)
    give_way(NICENESS)
    try:
        with TRACES.during(settings, name):
            uvloop.run(run(settings, name))
    except (MigrationError, UnsupportedServer) as error:
        raise SystemExit(str(error)) from None


def give_way(niceness: int) -> None:
    """Take a lower priority than the processes that accept mail.

    Where Linux groups processes by session (sched_autogroup), a process's own niceness counts within its session only,
    and the group's niceness ranks it: set here if the session has no other process.
    """
    os.nice(niceness)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # no Linux, or no groups
            Path("/proc/self/autogroup").write_text(str(niceness))


async def run(settings: Settings, name: str, stop: asyncio.Event | None = None) -> None:
    """Deliver until `stop` is set (default: at SIGTERM or SIGINT), then drain."""
    stop = stop or stopping.stop_event()
    if settings.database_url is None or settings.redis_url is None:
        raise RuntimeError("an mta process needs WAYBILL_DATABASE_URL and WAYBILL_REDIS_URL")
    scheduling.keep_loaded()
    _allow_files(settings.mta_connections + SPARE_FILES)
    stores = await Stores.open(settings, name)
    mta = await DeliveryProcess.start(settings, name, stores)
    work = asyncio.create_task(mta.work())
    await stopping.first_of(work, stop)
    await _stop(mta, work, settings.drain_s)
    await mta.close()
    await stores.close()
    _log.info("stopped")


class Stores:
    """The connections of one process to Postgres, Redis and DNS."""

    def __init__(
        self,
        settings: Settings,
        pool: asyncpg.Pool,
        membership: asyncpg.Pool,
        loading: asyncpg.Pool,
        settling: asyncpg.Pool,
        client: RedisClient,
        listener: RedisClient,
    ) -> None:
        self.pool = pool
        self.membership = membership  # renews the lease: must never wait behind the queries of deliveries
        self.loading = loading  # finds and loads work
        self.settling = settling  # records outcomes
        self.client = client
        self.listener = listener  # waits for wake-ups
        self.resolver = Resolver.from_settings(settings)

    @classmethod
    async def open(cls, settings: Settings, name: str) -> "Stores":
        """Connect to a database whose schema is current; raises MigrationError if it is not, and UnsupportedServer."""
        assert settings.database_url is not None
        assert settings.redis_url is not None
        await redis_store.refuse_old(settings.redis_url)
        pool = await open_current(settings.database_url, name=name, smallest=1, largest=5)
        membership = await open_pool(settings.database_url, name=f"{name} membership", largest=2, alone=True)
        loading = await open_pool(settings.database_url, name=f"{name} loading", largest=3, generic=True)
        settling = await open_pool(settings.database_url, name=f"{name} settling", largest=2, generic=True)
        client = redis_store.connect(settings.redis_url)
        listener = redis_store.connect(settings.redis_url, timeout_s=30)
        return cls(settings, pool, membership, loading, settling, client, listener)

    async def close(self) -> None:
        """Close all connections."""
        await self.resolver.close()
        await self.client.aclose()
        await self.listener.aclose()
        await close_pool(self.settling)
        await close_pool(self.loading)
        await close_pool(self.membership)
        await close_pool(self.pool)


class DeliveryProcess:
    """The parts of one process: the pipeline, its membership in the shard map, the simulator, and their helpers."""

    def __init__(
        self, settings: Settings, name: str, stores: Stores, simulator: Simulator, ownership: ShardOwnership
    ) -> None:
        process, pool = process_name(settings.state, name), stores.pool
        simulated: asyncio.Queue[DeliveryAttempt] = asyncio.Queue(MAX_WAITING)
        envelopes = EnvelopeBuilder(pool, settings, PoisonGuard(settings.state / "mta" / f"{name}.hand"))
        self._simulator = simulator
        self._complaints = SimulatedComplaints(pool, simulator.domain, simulated, route=ReportRoute.of(settings))
        self._router = Router.from_settings(settings, stores.resolver, simulator_port=simulator.port)
        self._security = TransportSecurity(settings, pool, stores.resolver)
        self._woken = WokenShards()
        flushed = functools.partial(metrics.flushed, "settle")
        settler = Settler(stores.settling, lambda: ownership.member_id, on_flush=flushed)
        self.outbound = OutboundPipeline(
            settings=settings, pool=pool, loading=stores.loading, client=stores.client, process=process,
            ownership=ownership, simulated=simulated, reader=HintReader(stores.client), woken=self._woken,
            router=self._router, envelopes=envelopes, settler=settler, security=self._security,
        )  # fmt: skip
        self.member = ShardMember(
            stores.membership, name=process, ownership=ownership, lease_s=settings.lease_s,
            before_take=self.outbound.settle_left, on_gain=self.outbound.gained,
            on_release=self.outbound.release, on_fenced=self.outbound.fenced,
        )  # fmt: skip
        self._presence = ProcessRegistration(pool, kind="mta", name=name, figures=self._figures)
        self._stamps = Stamps(pool, [envelopes.identities, self.member.cache, *self.outbound.caches])
        self._wakes = WakeListener(stores.listener)

    @classmethod
    async def start(cls, settings: Settings, name: str, stores: Stores) -> "DeliveryProcess":
        """Start the simulator, and build the rest around it."""
        simulator = await Simulator.start(settings, stores.pool)
        return cls(settings, name, stores, simulator, ShardOwnership(settings.shards))

    async def work(self) -> None:
        """Run all parts until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._presence.run())
            tasks.create_task(self.member.run())
            tasks.create_task(self._stamps.run())
            tasks.create_task(self._wakes.run(self._woken))
            tasks.create_task(self.outbound.run())
            tasks.create_task(self._complaints.run())
            tasks.create_task(_watch())
            tasks.create_task(service_time.watch())
            tasks.create_task(_announce(self.member))

    async def close(self) -> None:
        """Make the last complaints and end what the process started, after it has drained."""
        await self._complaints.drain()
        await self._simulator.close()
        await self._router.close()
        await self._security.close()

    def _figures(self) -> ProcessLoad:
        return ProcessLoad(len(self.member.owned), self.outbound.in_hand, self.outbound.load.rate)


def _allow_files(wanted: int) -> None:
    """Raise this process's limit of open files to `wanted`, or as far as allowed: shells allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _announce(member: ShardMember) -> None:
    """Tell the supervisor that this process is ready, as soon as it may own shards."""
    while not member.holds:  # noqa: ASYNC110 - once in the life of a process; Member has no event for it
        await asyncio.sleep(ASK_S)
    socket_activation.tell_ready()


async def _watch() -> None:
    """Feed the watchdog while the event loop turns: a process that hangs would keep its shards for ever."""
    poison_guard.watch()
    try:
        while True:
            await asyncio.sleep(poison_guard.ARM_EVERY_S)
            poison_guard.rearm()
    finally:
        poison_guard.rest()


async def _stop(mta: DeliveryProcess, work: "asyncio.Task[None]", grace_s: float) -> None:
    """Drain while the lease is still renewed, then give the lease up."""
    _log.info("draining", in_hand=mta.outbound.in_hand)
    await mta.outbound.drain(grace_s)
    work.cancel()
    await asyncio.wait({work}, timeout=END_S)
    with suppress(DatabaseUnavailable):
        await mta.member.leave()


if __name__ == "__main__":
    main()
