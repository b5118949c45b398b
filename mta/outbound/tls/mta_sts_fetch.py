"""Fetches MTA-STS policies over HTTPS: from `mta-sts.<domain>` alone, from public addresses, within bounds.

The domain's owner chooses the server, so it is not to be trusted: our own resolver looks its addresses up, and they are
checked again when a socket is made for them. RFC 8461 3.3: the certificate must be valid for the host name, no redirect
is followed, no HTTP cache is used.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import structlog

from engine.base.netaddr import is_public
from engine.base.settings import Settings
from engine.store.http_client import GuardedResolver, any_address, socket_factory
from engine.store.resolver import Resolver
from mta.outbound.tls.mta_sts import MAX_OCTETS
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType

FETCH_S = 20.0  # RFC 8461 3.3 suggests a minute, but mail of the domain waits meanwhile
HTTPS = 443
_PATH = "/.well-known/mta-sts.txt"

_log = structlog.get_logger("mta")


class StsFetcher:
    """Fetches policies for one process; use within one event loop."""

    def __init__(
        self,
        resolver: Resolver,
        *,
        may_dial: Callable[[str], bool] = is_public,
        authorities: Path | None = None,
        port: int = HTTPS,
        timeout_s: float = FETCH_S,
    ) -> None:
        """Fetch from addresses that `may_dial` allows; `authorities` is a PEM file in place of the system's
        authorities."""
        self._names = GuardedResolver(resolver, may_dial)
        self._may_dial = may_dial
        self._authorities = authorities
        self._port = port
        self._timeout_s = timeout_s
        self._tls: ssl.SSLContext | None = None

    @classmethod
    def from_settings(cls, settings: Settings, resolver: Resolver) -> "StsFetcher":
        """Make a fetcher for public policy hosts, and private ones where private mail hosts are allowed."""
        may_dial = any_address if settings.allow_private_mx else is_public
        return cls(resolver, may_dial=may_dial, authorities=settings.tls_authorities)

    async def fetch(self, domain: str) -> bytes | TlsFailure:
        """Return the text that `domain` (A-labels) serves, at most 64 KB, or the fault."""
        try:
            async with asyncio.timeout(self._timeout_s), self._session() as session:
                return await self._get(session, f"mta-sts.{domain}")
        except TimeoutError:
            return TlsFailure(TlsFailureType.STS_FETCH_ERROR, f"no answer within {self._timeout_s:g} s")
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            return TlsFailure(TlsFailureType.STS_WEBPKI_INVALID, _words(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return TlsFailure(TlsFailureType.STS_FETCH_ERROR, _words(error))

    async def _get(self, session: aiohttp.ClientSession, host: str) -> bytes | TlsFailure:
        port = "" if self._port == HTTPS else f":{self._port}"
        async with session.get(f"https://{host}{port}{_PATH}", allow_redirects=False) as response:
            if response.status != 200:
                return TlsFailure(TlsFailureType.STS_FETCH_ERROR, f"the policy host answers {response.status}")
            if response.content_type != "text/plain":
                return TlsFailure(TlsFailureType.STS_FETCH_ERROR, "the policy is not text/plain")
            parts: list[bytes] = []
            size = 0
            while size <= MAX_OCTETS and (part := await response.content.read(MAX_OCTETS + 1 - size)):
                parts.append(part)
                size += len(part)
        if size > MAX_OCTETS:
            return TlsFailure(TlsFailureType.STS_FETCH_ERROR, f"the policy exceeds {MAX_OCTETS:,} octets")
        return b"".join(parts)

    def _session(self) -> aiohttp.ClientSession:
        if self._tls is None:  # on first use: loading authorities costs 20 ms
            self._tls = ssl.create_default_context(cafile=self._authorities)
        connector = aiohttp.TCPConnector(
            resolver=self._names,
            use_dns_cache=False,  # the resolver has its own
            socket_factory=socket_factory(self._may_dial),
            ssl=self._tls,
            force_close=True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={"Accept": "text/plain"},
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            read_bufsize=MAX_OCTETS,
        )


def _words(error: Exception) -> str:
    """Return the error as one printable sentence."""
    cause: object = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate of the policy host is not valid: {cause.verify_message}"[:200]
    said = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return "".join(letter if letter.isprintable() else " " for letter in str(said))[:200]
