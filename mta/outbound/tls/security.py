"""Transport security of one delivering process: its TLS policies, the counts for reports, and their upkeep."""

import asyncio
import time
from datetime import timedelta

import asyncpg
import structlog

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.routes import Route
from engine.store.database_errors import DatabaseUnavailable
from engine.store.resolver import Resolver, ascii_domain
from mta.outbound.tls.mta_sts_cache import PolicyFetcher, StsPolicies
from mta.outbound.tls.policy import WITHOUT, MinTls, TlsPolicies, TlsPolicy
from mta.outbound.tls.report_counts import TlsReportCounts, TlsSession
from mta.smtp.client.tls_failures import TlsFailure

FLUSH_S = 10.0
FORGET_S = 3600.0
KEEP_EXPIRED = timedelta(days=7)  # to look up which policy applied last week

_log = structlog.get_logger("mta")


class TransportSecurity:
    """The policies and counts of one process: run `run` beside it, `flush` at its end, then `close`."""

    def __init__(
        self, settings: Settings, pool: asyncpg.Pool, resolver: Resolver, fetcher: PolicyFetcher | None = None
    ) -> None:
        """Use `fetcher` in place of the one that the settings describe."""
        self.report = TlsReportCounts(pool)
        self._sts = StsPolicies(pool, resolver, fetcher or _LazyFetcher(settings, resolver), self.report)
        self._policies = TlsPolicies(resolver, self._sts, dnssec_trusted=settings.dnssec_trusted)
        # In local mode all mail goes to the built-in sink, to which no policy of a domain applies.
        self._applies = settings.delivery == "live"

    async def policy(self, domain: str, route: Route, min_tls: MinTls = MinTls.OPPORTUNISTIC) -> TlsPolicy:
        """Return the TLS policy for mail to `domain` over `route`. Raises DatabaseUnavailable."""
        return await self._policies.of(domain, route, min_tls) if self._applies else WITHOUT

    def count(self, domain: str, sessions: tuple[TlsSession, ...]) -> None:
        """Count TLS sessions for the recipient's domain (A- or U-labels)."""
        self.report.count(ascii_domain(domain) or domain, sessions)

    async def run(self) -> None:
        """Write counts every few seconds and delete what is old every hour, until cancelled."""
        forget_at = 0.0
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self.report.flush()
                if time.monotonic() >= forget_at:
                    await self.report.forget()
                    await self._sts.forget_expired(clock.now() - KEEP_EXPIRED)
                    forget_at = time.monotonic() + FORGET_S
            except DatabaseUnavailable as error:
                _log.warning("TLS session counts not written yet", error=repr(error))

    async def flush(self) -> None:
        """Write the last counts; while Postgres is away they are lost."""
        try:
            await self.report.flush()
        except DatabaseUnavailable as error:
            _log.warning("TLS session counts lost", error=repr(error))

    async def close(self) -> None:
        """Cancel look-ups and fetches under way."""
        await self._policies.close()
        await self._sts.close()


class _LazyFetcher:
    """The fetcher that the settings describe, made once a domain announces a policy: its HTTP client is 7 MiB that an
    idle process does not need, and is loaded in a thread."""

    def __init__(self, settings: Settings, resolver: Resolver) -> None:
        self._settings = settings
        self._resolver = resolver
        self._fetcher: PolicyFetcher | None = None

    async def fetch(self, domain: str) -> bytes | TlsFailure:
        """Return the policy text or the fault; see `StsFetcher.fetch`."""
        if self._fetcher is None:
            self._fetcher = await asyncio.to_thread(self._made)
        return await self._fetcher.fetch(domain)

    def _made(self) -> PolicyFetcher:
        from mta.outbound.tls.mta_sts_fetch import StsFetcher  # noqa: PLC0415

        return StsFetcher.from_settings(self._settings, self._resolver)
