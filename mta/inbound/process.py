"""Run one process of the server for incoming mail (kind `mx`): open services, serve the port, drain on SIGTERM.

`ops.processes.mx` starts it and finds the certificate.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import structlog
from msgspec import Struct

from engine.base import scheduling
from engine.base.settings import Settings
from engine.receiving.receive import Receiver
from engine.receiving.recipients import RecipientLookup
from engine.store import large_mail, metrics, socket_activation, stopping
from engine.store import redis as redis_store
from engine.store.caches import Stamps
from engine.store.migrate import open_current
from engine.store.pace import PACE
from engine.store.postgres import close_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration, Rate
from engine.store.rate_limits import RateLimiter
from engine.store.resolver import Resolver
from mta.inbound import counters
from mta.inbound.limits import UnknownRecipientLimit, UnsolicitedMailLimit
from mta.inbound.receive import IncomingMessages
from mta.inbound.scanning.scan import MessageScanner
from mta.inbound.server import InboundServer
from mta.smtp.server.certificates import ServerCertificate

if TYPE_CHECKING:
    from mta.inbound.policy_server import PolicyServer

END_S: Final = 3.0

_log = structlog.get_logger("mx")


class InboundServices(Struct):
    """The services of one process, from `open_services` to `close_services`."""

    pool: asyncpg.Pool
    client: redis_store.RedisClient
    resolver: Resolver
    scanner: MessageScanner
    receiver: Receiver
    stamps: Stamps
    server: InboundServer
    policies: "PolicyServer | None"  # None: a proxy serves them
    rate: Rate


async def open_services(settings: Settings, certificate: Path, key: Path, *, name: str = "mx-1") -> InboundServices:
    """Open everything but the port; raises RuntimeError for a missing setting."""
    if settings.database_url is None or settings.redis_url is None or settings.key_pepper is None:
        raise RuntimeError("Incoming mail needs WAYBILL_DATABASE_URL, WAYBILL_REDIS_URL and WAYBILL_KEY_PEPPER")
    served_certificate = ServerCertificate(certificate, key)
    await redis_store.refuse_old(settings.redis_url)
    pool = await open_current(settings.database_url, name=name, smallest=1, largest=8)
    client = redis_store.connect(settings.redis_url)
    resolver = Resolver.from_settings(settings)
    scanner = MessageScanner(settings)
    receiver = Receiver(pool, settings)
    lookup = RecipientLookup(pool, settings)
    rate = Rate()
    limits = RateLimiter(client)
    server = InboundServer(
        settings,
        certificate=served_certificate,
        recipients=lookup,
        messages=IncomingMessages(receiver, resolver, scanner, settings, rate),
        unknown=UnknownRecipientLimit(limits),
        unsolicited=UnsolicitedMailLimit(limits, settings),
    )
    stamps = Stamps(pool, lookup.caches)
    return InboundServices(
        pool, client, resolver, scanner, receiver, stamps, server, _policy_server(pool, settings), rate
    )


def _policy_server(pool: asyncpg.Pool, settings: Settings) -> "PolicyServer | None":
    """Return the server of MTA-STS policies, if the settings name a port for it."""
    if settings.policy_tls_port is None and settings.policy_http_port is None:
        return None
    from mta.inbound.policy_server import PolicyServer  # noqa: PLC0415 - aiohttp takes 8 MB

    return PolicyServer(pool, settings)


async def close_services(services: InboundServices, grace_s: float) -> None:
    """Drain the server for up to `grace_s` seconds, wait for messages that are being stored, and close."""
    await services.server.drain(grace_s)
    if services.policies is not None:
        await services.policies.stop()
    metrics.TALLY.write()
    await services.receiver.drain()
    await services.scanner.close()
    await services.resolver.close()
    await services.client.aclose()
    await close_pool(services.pool)


async def run(
    settings: Settings,
    certificate: Path,
    key: Path,
    given: Sequence[tuple[socket.socket, bool]] = (),
    *,
    name: str = "mx",
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set (default: at SIGTERM or SIGINT).

    `given` are open sockets, as for `SmtpServer.start`.
    """
    stop = stop or stopping.stop_event()
    services = await open_services(settings, certificate, key, name=name)
    counters.show_scans()
    services.server.start(given)
    if services.policies is not None:
        await services.policies.start(settings.mx_host)
    scheduling.keep_loaded()
    large_mail.give_way()
    socket_activation.tell_ready()
    _log.info("serving", port=settings.mx_port)
    work = asyncio.create_task(_background(services, name))
    await stopping.first_of(work, stop)
    _log.info("draining", sessions=services.server.sessions)
    await services.server.drain(settings.drain_s)
    work.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait({work}, timeout=END_S)
    await close_services(services, 0)
    _log.info("stopped")


async def _background(services: InboundServices, name: str) -> None:
    figures = lambda: ProcessLoad(in_hand=services.server.sessions, rate=services.rate.of())  # noqa: E731
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ProcessRegistration(services.pool, kind="mx", name=name, figures=figures).run())
        tasks.create_task(services.stamps.run())
        if services.policies is not None:
            tasks.create_task(services.policies.shelf.run())
        tasks.create_task(_write_metrics(services.server))


async def _write_metrics(server: InboundServer) -> None:
    while True:
        await PACE.wait(1)
        metrics.TALLY.write()
        counters.HELD_BYTES.set(server.memory.held)
