"""The `host` process of the small profile: everything but the API, on one event loop.

It carries a relay, an mx, an mta and the worker, each as its own process would run it, and in local mode the DNS
responder and the sink. A part that fails ends the process, and the supervisor starts another one.
"""

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import structlog
import uvloop

import mta.inbound.process
import mta.process
import mta.submission.process
from engine.base import logs, scheduling
from engine.base.netaddr import connect_host
from engine.base.server_versions import UnsupportedServer
from engine.base.settings import BadSetting, Settings, load
from engine.store import postgres, service_time, socket_activation, stopping
from engine.store.migrate import MigrationError
from engine.store.pace import PACE
from engine.store.traces import TRACES
from mta.outbound.source_ips.addresses import check_sources
from ops.host import sockets
from ops.host.process_specs import runs_local_peers
from ops.local import certificate, dns, personalities, sink
from ops.local.sink_store import MailStore, StoreMode
from ops.processes import metrics, worker
from ops.processes.certificates import NoCertificate, configured, self_signed
from ops.processes.relay import certificate_files

LOOPBACK: Final = "127.0.0.1"
# All parts share a pool of sessions, and a second one whose sessions plan statements once.
SESSIONS: Final = 8
IDLE_SESSION_S: Final = 20.0
# On one core at 100 messages per second, the p99 of a send is 55 ms with it, 77 ms without.
NICENESS: Final = 10
# The order in which parts are stopped: the way of a message, so that accepted mail can still be settled.
_STOPPED: Final = (("relay", "mx"), ("mta",), ("worker", "metrics"), ("dns", "sink"))

_log = structlog.get_logger("host")


class Part(NamedTuple):
    """A part of the process: its kind, and its work until the event is set."""

    kind: str
    run: Callable[[asyncio.Event], Awaitable[None]]


def main() -> int:
    """Run all parts until SIGTERM, then drain them; return the exit status."""
    settings = load(os.environ).settings
    logs.configure("host", settings.log_level, settings.state)
    scheduling.yield_to_running()
    service_time.join(settings)
    mta.process.give_way(NICENESS)
    os.umask(0o077)  # mail that the sink stores must not be readable by other users of this host
    postgres.share_pools(SESSIONS, IDLE_SESSION_S)
    try:
        check_sources(settings)
        with _parts(settings) as parts, TRACES.during(settings, "host"):
            if any(part.kind == "mta" for part in parts):  # it listens for the signs of life
                PACE.follow()
            uvloop.run(run(parts))
    except (
        BadSetting,
        MigrationError,
        UnsupportedServer,
        NoCertificate,
        socket_activation.WrongSockets,
        OSError,
    ) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def run(parts: Iterable[Part]) -> None:
    """Run parts until SIGTERM or SIGINT, then stop them by kind; raises the error of a part that ends before."""
    stop = stopping.stop_event()
    running = {part.kind: _Running(part) for part in parts}
    async with asyncio.TaskGroup() as group:
        for one in running.values():
            one.start(group)
        await stop.wait()
        for kinds in _STOPPED:
            stopped = [running[kind] for kind in kinds if kind in running]
            for one in stopped:
                one.stop.set()
            await asyncio.gather(*(one.ended.wait() for one in stopped))
    _log.info("stopped")


class _Running:
    def __init__(self, part: Part) -> None:
        self.stop = asyncio.Event()
        self.ended = asyncio.Event()
        self._part = part

    def start(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._run(), name=self._part.kind)

    async def _run(self) -> None:
        try:
            await self._part.run(self.stop)
        finally:
            self.ended.set()


@contextmanager
def _parts(settings: Settings) -> Iterator[list[Part]]:
    """Yield the parts that this host's settings ask for, in the order of their start; raises NoCertificate."""
    found, kinds = socket_activation.take(), settings.processes
    parts = []
    with MailStore(settings.state / "sink", StoreMode.FILES) if runs_local_peers(settings) else nullcontext() as store:
        if store is not None:
            parts += _local_peers(settings, store)
        if sockets.SUBMISSION in found:
            clear = [(one, False) for one in found[sockets.SUBMISSION]]
            secured = [(one, True) for one in found.get(sockets.SUBMISSIONS, [])]
            serve = functools.partial(
                mta.submission.process.run, settings, *certificate_files(settings), clear + secured, name="relay-1"
            )
            parts.append(_part("relay", serve))
        if sockets.SMTP in found:
            files = configured(settings) or self_signed(settings, "mx")
            given = [(one, False) for one in found[sockets.SMTP]]
            parts.append(_part("mx", functools.partial(mta.inbound.process.run, settings, *files, given, name="mx-1")))
        if "mta" in kinds:
            parts.append(_part("mta", functools.partial(mta.process.run, settings, "mta-1")))
        parts.append(
            _part("worker", functools.partial(worker.run, settings))
            if "worker" in kinds
            else _part("metrics", functools.partial(metrics.run, settings))
        )
        yield parts


def _part(kind: str, run: Callable[..., Awaitable[None]]) -> Part:
    return Part(kind, lambda stop: run(stop=stop))


def _local_peers(settings: Settings, store: MailStore) -> list[Part]:
    tls = certificate.server_context(Path(store.folder))
    mx = (connect_host(settings.mx_host), settings.mx_port) if "mx" in settings.processes else None
    to = (LOOPBACK, settings.sink_port)
    peers, known = sink.SinkPeers(mx, (LOOPBACK, settings.dns_port)), personalities.load(settings.state)
    return [
        _part("dns", functools.partial(dns.serve, LOOPBACK, settings.dns_port, to, settings, {})),
        _part("sink", functools.partial(sink.serve, *to, store, tls, peers, known)),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
