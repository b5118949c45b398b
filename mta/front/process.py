"""Run the SMTP servers of a front until SIGTERM. `ops.processes.front_smtp` starts it and finds the certificate."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import aiohttp
import structlog

from engine.base.settings import Settings
from engine.cells.locator import Locator
from engine.store import socket_activation, stopping
from mta.front.places import Places
from mta.front.server import FrontInboundServer, FrontServer, FrontSubmissionServer
from mta.smtp.server.certificates import ServerCertificate

FIRST_LOOK_S: Final = 10.0  # at the directory; a front starts without it too

Given = Sequence[tuple[socket.socket, bool]]

_log = structlog.get_logger("front")


async def run(
    settings: Settings,
    certificate: Path,
    key: Path,
    *,
    submission: Given | None = (),
    incoming: Given | None = (),
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set (default: at SIGTERM or SIGINT).

    `submission` and `incoming` are open sockets, as for `SmtpServer.start`; None: without that server. Raises
    RuntimeError for a missing setting.
    """
    if settings.directory_url is None or settings.key_pepper is None:
        raise RuntimeError("A front needs WAYBILL_DIRECTORY_URL and WAYBILL_KEY_PEPPER")
    stop = stop or stopping.stop_event()
    async with AsyncExitStack() as opened:
        # The locator has its own bounds: one cell that hangs must not use up the connections to all.
        connector = aiohttp.TCPConnector(limit=0)
        http = await opened.enter_async_context(aiohttp.ClientSession(connector=connector, trust_env=False))
        locator = Locator(settings.directory_url, settings.pepper, http)
        opened.push_async_callback(locator.close)
        following = asyncio.create_task(locator.run())
        opened.push_async_callback(_ended, following)
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_S):
                await locator.looked.wait()
        servers = _started(
            settings, Places(locator, settings), ServerCertificate(certificate, key), submission, incoming
        )
        socket_activation.tell_ready()
        _log.info("serving", doors=[server.door for server in servers])
        await stopping.first_of(following, stop)
        _log.info("draining", sessions=sum(server.sessions for server in servers))
        await asyncio.gather(*(server.drain(settings.drain_s) for server in servers))
    _log.info("stopped")


def _started(
    settings: Settings, places: Places, certificate: ServerCertificate, submission: Given | None, incoming: Given | None
) -> list[FrontServer]:
    servers: list[FrontServer] = []
    for kind, given in ((FrontSubmissionServer, submission), (FrontInboundServer, incoming)):
        if given is not None:
            server = kind(settings, places, certificate)
            server.start(given)
            servers.append(server)
    return servers


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
