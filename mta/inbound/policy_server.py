"""Serve MTA-STS policies over HTTPS with certificates got by ACME, and answer the authority's challenges over HTTP.

Only where no proxy stands in front (WAYBILL_POLICY_TLS_PORT, WAYBILL_POLICY_HTTP_PORT). The certificate is chosen by
the server name of the handshake; clients that name no host of ours get none.
"""

import asyncio
import os
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import asyncpg
import structlog
from aiohttp import web

from engine.base.secrets import Pepper, Unsealable, derived, unseal
from engine.base.settings import Settings
from engine.receiving.certificates import store as certificates
from engine.receiving.certificates.renewal import CHALLENGE_PATH
from engine.receiving.certificates.rules import SEALING
from engine.receiving.certificates.types import StoredCertificate
from engine.receiving.mta_sts import rules
from engine.receiving.mta_sts import store as policies
from engine.receiving.mta_sts.service import read_slot
from engine.store.database_errors import DatabaseUnavailable

RELOAD_S: Final = 30.0
MAX_CONTEXTS: Final = 256  # TLS contexts kept ready, some 50 kB each
MAX_READ: Final = 200  # certificates per query
IDLE_S: Final = 10.0
MAX_HEAD_BYTES: Final = 8_190

_log = structlog.get_logger("policy-server")


class CertificateShelf:
    """All certificates of policy hosts in memory, as stored; TLS contexts are made when a client asks for a host."""

    def __init__(self, pool: asyncpg.Pool, pepper: Pepper) -> None:
        self._pool = pool
        self._sealing = derived(pepper, SEALING)
        self._stored: dict[str, StoredCertificate] = {}
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()
        self.context = _server_context()
        self.context.sni_callback = self._choose

    async def run(self) -> None:
        """Reload what changed, until cancelled; the first time after a while, since the start has loaded all."""
        while True:
            await asyncio.sleep(RELOAD_S)
            try:
                await self.reload()
            except (DatabaseUnavailable, OSError) as error:
                _log.warning("certificates not read", error=repr(error))

    async def reload(self) -> None:
        """Read new and renewed certificates; forget those of removed hosts."""
        ends: dict[str, datetime] = {
            row["host"]: row["not_after"] for row in await certificates.ENDS.records(self._pool)
        }
        for host in [one for one in self._stored if one not in ends]:
            del self._stored[host]
            self._contexts.pop(host, None)
        fresh = [host for host, end in ends.items() if host not in self._stored or self._stored[host].not_after != end]
        for start in range(0, len(fresh), MAX_READ):
            for one in await certificates.READ_MANY.fetch(self._pool, fresh[start : start + MAX_READ]):
                self._stored[one.host] = one
                self._contexts.pop(one.host, None)

    def _choose(self, handshake: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        """Give the handshake the certificate of the host that the client names (RFC 6066 3)."""
        context = self._context((name or "").lower())
        if context is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        handshake.context = context
        return None

    def _context(self, host: str) -> ssl.SSLContext | None:
        known = self._contexts.get(host)
        if known is not None:
            self._contexts.move_to_end(host)
            return known
        stored = self._stored.get(host)
        if stored is None:
            return None
        try:
            made = self._made(stored)
        except (Unsealable, ssl.SSLError, OSError) as error:
            _log.error("certificate not usable", host=host, error=repr(error))
            return None
        self._contexts[host] = made
        if len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return made

    def _made(self, stored: StoredCertificate) -> ssl.SSLContext:
        key = unseal(self._sealing, stored.sealed_key, stored.host.encode())
        context = _server_context()
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)  # Python's ssl reads certificates from files alone
        try:
            os.write(descriptor, key + b"\n" + stored.chain.encode())
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return context


class PolicyServer:
    """The HTTPS and HTTP listeners of one process."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._mail_hosts = (settings.mail_host.lower(),)
        self.shelf = CertificateShelf(pool, settings.pepper)
        self._runners: list[web.ServerRunner] = []

    async def start(self, host: str) -> None:
        """Open the ports that the settings name, on address `host`. Raises OSError for one that is in use."""
        if self._settings.policy_tls_port is not None:
            await self.shelf.reload()
            await self._listen(host, self._settings.policy_tls_port, self._policy, self.shelf.context)
        if self._settings.policy_http_port is not None:
            await self._listen(host, self._settings.policy_http_port, self._challenge, None)

    async def stop(self) -> None:
        """Close the ports and the connections."""
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(
        self,
        host: str,
        port: int,
        answer: Callable[[web.BaseRequest], Awaitable[web.Response]],
        tls: ssl.SSLContext | None,
    ) -> None:
        server = web.Server(
            answer,
            keepalive_timeout=IDLE_S,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            access_log=None,
        )
        runner = web.ServerRunner(server, shutdown_timeout=IDLE_S)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, host, port, ssl_context=tls, reuse_port=True).start()

    async def _policy(self, request: web.BaseRequest) -> web.Response:
        domain = rules.served_domain(request.headers.get("Host", ""))
        if request.path != rules.POLICY_PATH or request.method not in {"GET", "HEAD"} or domain is None:
            return web.Response(status=404, text="There is nothing at this path.\n")
        try:
            async with read_slot(request.remote):
                policy = await policies.SERVED.first(self._pool, domain)
        except (DatabaseUnavailable, OSError):
            return web.Response(status=503, text="The policy can't be read just now.\n")
        if policy is None:
            return web.Response(status=404, text="This host has no MTA-STS policy.\n")
        return web.Response(text=rules.policy_text(policy, self._mail_hosts))

    async def _challenge(self, request: web.BaseRequest) -> web.Response:
        token = request.path.removeprefix(CHALLENGE_PATH)
        if token == request.path or request.method not in {"GET", "HEAD"}:
            return web.Response(status=404, text="There is nothing at this path.\n")
        try:
            async with read_slot(request.remote):
                rows = await certificates.READ_CHALLENGE.records(self._pool, token)
        except (DatabaseUnavailable, OSError):
            return web.Response(status=503, text="Try again shortly.\n")
        if not rows:
            return web.Response(status=404, text="There is no such challenge.\n")
        return web.Response(text=rows[0]["key_authorization"], content_type="application/octet-stream")


def _server_context() -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later, which RFC 8461 3.3 and RFC 9325 ask for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
