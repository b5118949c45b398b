"""Run one process of SMTP submission (kind `relay`): open services, serve both ports, drain on SIGTERM.

`ops.processes.relay` starts it and finds the certificate.
"""

import asyncio
import functools
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import asyncpg
import structlog
from msgspec import Struct

from engine.base import scheduling
from engine.base.settings import Settings
from engine.delivery.hints import Hints
from engine.people.api_keys.key_auth import TOUCH_S, Keys
from engine.sending.accept import Acceptor
from engine.store import exemplars, large_mail, metrics, socket_activation, stopping
from engine.store import redis as redis_store
from engine.store.caches import Stamps
from engine.store.last_writes import LastWrites
from engine.store.migrate import open_current
from engine.store.pace import PACE
from engine.store.postgres import close_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration, Rate
from engine.store.rate_limits import RateLimiter
from mta.smtp.server.certificates import ServerCertificate
from mta.submission.auth import SubmissionAuth
from mta.submission.server import SubmissionServer
from mta.submission.submit import Submitter

END_S: Final = 3.0

_log = structlog.get_logger("relay")


class SubmissionServices(Struct):
    """The services of one process, from `open_services` to `close_services`."""

    pool: asyncpg.Pool
    client: redis_store.RedisClient
    acceptor: Acceptor
    keys: Keys
    hints: Hints
    stamps: Stamps
    server: SubmissionServer
    rate: Rate


async def open_services(
    settings: Settings, certificate: Path, key: Path, *, name: str = "relay-1"
) -> SubmissionServices:
    """Open everything but the ports; raises RuntimeError for a missing setting."""
    if settings.database_url is None or settings.redis_url is None or settings.key_pepper is None:
        raise RuntimeError("SMTP submission needs WAYBILL_DATABASE_URL, WAYBILL_REDIS_URL and WAYBILL_KEY_PEPPER")
    served_certificate = ServerCertificate(certificate, key)
    await redis_store.refuse_old(settings.redis_url)
    pool = await open_current(settings.database_url, name=name, smallest=1, largest=8)
    client = redis_store.connect(settings.redis_url)
    hints = Hints(client)
    keys = Keys(pool, settings.pepper)
    limits = RateLimiter(client)
    rate = Rate()
    on_flush = rate.flushed(functools.partial(metrics.flushed, "accept"))
    acceptor = Acceptor(pool, hints, settings, on_flush=on_flush)
    server = SubmissionServer(
        settings,
        certificate=served_certificate,
        auth=SubmissionAuth(keys, limits, settings),
        limits=limits,
        submitter=Submitter(acceptor, settings.mail_host, LastWrites.from_settings(settings, client)),
    )
    stamps = Stamps(pool, [keys.cache, *acceptor.caches])
    return SubmissionServices(pool, client, acceptor, keys, hints, stamps, server, rate)


async def close_services(services: SubmissionServices, grace_s: float) -> None:
    """Drain the server for up to `grace_s` seconds, write what is pending, and close."""
    await services.server.drain(grace_s)
    metrics.TALLY.write()
    await services.acceptor.drain()
    await services.keys.write_last_uses()
    await services.hints.drain()
    await services.client.aclose()
    await close_pool(services.pool)


async def run(
    settings: Settings,
    certificate: Path,
    key: Path,
    given: Sequence[tuple[socket.socket, bool]] = (),
    *,
    name: str = "relay",
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set (default: at SIGTERM or SIGINT).

    `given` are open sockets, as for `SubmissionServer.start`.
    """
    stop = stop or stopping.stop_event()
    services = await open_services(settings, certificate, key, name=name)
    services.server.start(given)
    scheduling.keep_loaded()
    large_mail.give_way()
    socket_activation.tell_ready()
    _log.info("serving", port=settings.submission_port, tls_port=settings.submission_tls_port)
    work = asyncio.create_task(_background(services, name))
    await stopping.first_of(work, stop)
    _log.info("draining", sessions=services.server.sessions)
    await services.server.drain(settings.drain_s)
    work.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait({work}, timeout=END_S)
    await close_services(services, 0)
    _log.info("stopped")


async def _background(services: SubmissionServices, name: str) -> None:
    figures = lambda: ProcessLoad(in_hand=services.server.sessions, rate=services.rate.of())  # noqa: E731
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ProcessRegistration(services.pool, kind="relay", name=name, figures=figures).run())
        tasks.create_task(services.stamps.run())
        tasks.create_task(_housekeeping(services))


async def _housekeeping(services: SubmissionServices) -> None:
    """Write metrics every second, and the keys' last uses every half minute."""
    lost, write_at = 0, time.monotonic() + TOUCH_S
    while True:
        await PACE.wait(1)
        metrics.TALLY.write()
        exemplars.KEPT.write()
        await services.hints.probe()
        metrics.REDIS_AWAY.set(1 if services.hints.away else 0)
        metrics.HINTS_LOST.inc(services.hints.lost - lost)
        lost = services.hints.lost
        if time.monotonic() >= write_at:
            write_at += TOUCH_S
            await services.keys.write_last_uses()
