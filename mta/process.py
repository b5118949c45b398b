"""One mta process: start, own shards, deliver, drain on SIGTERM, stop.

`python -m mta.process --name mta-1`; settings come from the environment.
"""

import argparse
import asyncio
import functools
import gc
import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path

import structlog
import uvloop
from engine.store.database_errors import DatabaseUnavailable

from engine.base import logs
from engine.base.settings import BadSetting, Settings, load
from engine.delivery.hints import HintReader, Wakes, WokenShards
from engine.flows.settle import Settler
from engine.store import metrics, socket_activation
from engine.store import redis as redis_store
from engine.store.caches import Stamps
from engine.store.migrate import MigrationError, open_current
from engine.store.postgres import close_pool, open_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration
from engine.store.resolver import Resolver
from mta.outbound import blackbox
from mta.outbound.blackbox import BlackBox
from mta.outbound.loop import Outbound
from mta.outbound.prepare import Preparer
from mta.outbound.route import Router
from mta.outbound.security import Security
from mta.outbound.sources_bind import check_sources
from mta.simulator.complaints import Complaints
from mta.simulator.server import Simulator
from shards.member import Member

ASK_S = 0.05
# Below those who accept: a request waits for an answer, mail may wait for milliseconds. Measured on two cores at full
# load and at 750/s: accepted 1,700 → 3,100/s, accept p50 7.3 → 4.8 ms; 10 starved delivering beside busy neighbours.
NICENESS = 3
SPARE_FILES = 1_024  # beside connections to mail servers: DNS questions, stores, the simulator
END_S = 3.0  # a driver that is cancelled in the middle of a query may take its time

_log = structlog.get_logger("mta")


def main() -> None:
    """The process's entry."""
    parser = argparse.ArgumentParser(prog="mta.process")
    parser.add_argument("--name", default="mta-1")
    name: str = parser.parse_args().name
    settings = load(os.environ).settings
    try:
        check_sources(settings)
    except BadSetting as error:
        raise SystemExit(str(error)) from None
    logs.configure(name, settings.log_level, settings.state)
    give_way()
    try:
        uvloop.run(run(settings, name))
    except MigrationError as error:
        raise SystemExit(str(error)) from None


def process_name(settings: Settings, name: str) -> str:
    """What no other living process of the installation is called: by host, state folder and place in it."""
    return f"{socket.gethostname()}:{settings.state.absolute()}:{name}"


def give_way() -> None:
    """Take a lower priority than the doors have.

    Where Linux groups processes by session (sched_autogroup), a process's own niceness counts within its session only,
    and the group's is what ranks it: set when the session is this process's alone.
    """
    os.nice(NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # no Linux, or no groups
            Path("/proc/self/autogroup").write_text(str(NICENESS))


async def run(settings: Settings, name: str) -> None:
    """Deliver until SIGTERM or SIGINT, then drain."""
    if settings.database_url is None or settings.redis_url is None:
        raise RuntimeError("an mta process needs WAYBILL_DATABASE_URL and WAYBILL_REDIS_URL")
    gc.freeze()  # what is loaded by now stays: no collection needs to look at it again
    gc.set_threshold(50_000, 20, 100)  # deliveries make few cycles; the default looks 70 times as often
    _allow_files(settings.mta_connections + SPARE_FILES)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    pool = await open_current(settings.database_url, name=name, smallest=1, largest=5)
    loading = await open_pool(settings.database_url, name=f"{name} loading", largest=2, generic=True)
    client = redis_store.connect(settings.redis_url)
    listener = redis_store.connect(settings.redis_url, timeout_s=30)
    resolver = Resolver.from_settings(settings)
    simulator = await Simulator.start(settings, pool)
    complaints = Complaints(pool, simulator.domain)
    router = Router.from_settings(settings, resolver, simulator_port=simulator.port)
    security = Security(settings, pool, resolver)
    preparer = Preparer(pool, settings, BlackBox(settings.state / "mta" / f"{name}.hand"))
    woken = WokenShards()
    process = process_name(settings, name)
    settling = await open_pool(settings.database_url, name=f"{name} settling", largest=2, generic=True)
    settler = Settler(settling, lambda: member.id, on_flush=functools.partial(metrics.flushed, "settle"))
    outbound = Outbound(
        settings=settings,
        pool=pool,
        loading=loading,
        client=client,
        process=process,
        reader=HintReader(client, name),
        woken=woken,
        router=router,
        preparer=preparer,
        settler=settler,
        security=security,
        settled=complaints.settled,
    )
    member = outbound.member = Member(
        pool,
        name=process,
        shards=settings.shards,
        lease_s=settings.lease_s,
        on_gain=outbound.gained,
        on_release=outbound.release,
        on_fenced=outbound.fenced,
    )
    presence = ProcessRegistration(pool, kind="mta", name=name, figures=lambda: _figures(outbound, member))
    stamps = Stamps(pool, [preparer.keys, member.cache, *outbound.caches])
    work = asyncio.create_task(_work(presence, outbound, member, stamps, Wakes(listener), woken, complaints))
    ended = asyncio.create_task(stop.wait())
    await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        ended.cancel()
        work.result()  # raises what ended it: the supervisor starts a fresh process
    await _stop(outbound, member, work, settings.drain_s)
    await complaints.drain()
    await simulator.close()
    await router.close()
    await security.close()
    await resolver.close()
    await client.aclose()
    await listener.aclose()
    await close_pool(settling)
    await close_pool(loading)
    await close_pool(pool)
    _log.info("stopped")


def _allow_files(wanted: int) -> None:
    """Raise this process's limit of open files as far as wanted and allowed: shells allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _figures(outbound: Outbound, member: Member) -> ProcessLoad:
    return ProcessLoad(len(member.owned), outbound.in_hand, outbound.load.rate)


async def _work(
    presence: ProcessRegistration,
    outbound: Outbound,
    member: Member,
    stamps: Stamps,
    wakes: Wakes,
    woken: WokenShards,
    complaints: Complaints,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(presence.run())
        tasks.create_task(member.run())
        tasks.create_task(stamps.run())
        tasks.create_task(wakes.run(woken))
        tasks.create_task(outbound.run())
        tasks.create_task(complaints.run())
        tasks.create_task(_watch())
        tasks.create_task(_announce(member))


async def _announce(member: Member) -> None:
    """Say that this process is ready as soon as it may own shards."""
    while not member.holds:  # noqa: ASYNC110 - once in a life, and the member has no event for it
        await asyncio.sleep(ASK_S)
    socket_activation.tell_ready()


async def _watch() -> None:
    """Show that the loop turns: a process that hangs in one message would hold its shards for ever."""
    blackbox.watch()
    try:
        while True:
            await asyncio.sleep(blackbox.ARM_EVERY_S)
            blackbox.rearm()
    finally:
        blackbox.rest()


async def _stop(outbound: Outbound, member: Member, work: "asyncio.Task[None]", grace_s: float) -> None:
    """Drain while the lease is still being renewed, then give it up."""
    _log.info("draining", in_hand=outbound.in_hand)
    await outbound.drain(grace_s)
    work.cancel()
    await asyncio.wait({work}, timeout=END_S)
    with suppress(DatabaseUnavailable):
        await member.leave()


if __name__ == "__main__":
    main()
