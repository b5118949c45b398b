"""Finds the MTA-STS policy that applies to a domain now: TXT record, HTTPS fetch, and the policies kept in Postgres.

All processes share the kept policies, which outlive them. A policy that has been seen applies until its max_age is
over, whatever happens to DNS or the policy host meanwhile: otherwise an attacker who can disturb those could switch it
off.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import asyncpg
import structlog
from msgspec import Struct

from engine.base import clock
from engine.store.database_errors import DatabaseUnavailable
from engine.store.group_commit import GroupCommit
from engine.store.queries import Queries
from engine.store.resolver import FAILURE_TTL_S, Answered, Records, Resolver, TemporaryFailure
from mta.outbound.tls.mta_sts import InvalidPolicy, StsPolicy, parse, record_id
from mta.outbound.tls.report_counts import TlsReportCounts
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType

TXT_S = 4.0  # mail waits for it; without an answer the kept policy applies
FETCH_AGAIN_S = 300.0  # RFC 8461 3.3: not more often than every five minutes after a failure
REFRESH = timedelta(days=1)  # RFC 8461 10.2: a policy in use is renewed long before it expires
_MAX_FAILED = 10_000
_MAX_FETCHES = 128  # at once; more wait for their turn

_SQL = Queries.beside(__file__, "mta_sts_cache.sql")
_SAVE = _SQL.command("save_policy")
_FORGET = _SQL.command("forget_policies")

_log = structlog.get_logger("mta")


class StoredPolicy(Struct, frozen=True):
    """A policy as it was fetched."""

    domain: str
    record_id: str
    policy: str
    fetched_at: datetime
    expires_at: datetime


_LOAD = _SQL.rows("load_policies", StoredPolicy)


class EffectivePolicy(Struct, frozen=True):
    """The policy that applies, None for none; valid until `until` on the monotonic clock."""

    policy: StsPolicy | None
    until: float


class PolicyFetcher(Protocol):
    """Fetches policies."""

    async def fetch(self, domain: str) -> bytes | TlsFailure:
        """Return the text of the policy that `domain` serves, or the fault; see `StsFetcher.fetch`."""


class StsPolicies:
    """Policies for one process; `close` it in its event loop. `counts` counts the fetches without a usable policy."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        resolver: Resolver,
        fetcher: "PolicyFetcher",
        counts: TlsReportCounts,
    ) -> None:
        self._pool = pool
        self._resolver = resolver
        self._fetcher = fetcher
        self._counts = counts
        self._loads: GroupCommit[str, StoredPolicy | None] = GroupCommit(self._load)
        self._failed: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._refreshes: dict[str, asyncio.Task[StsPolicy | None]] = {}
        self._slots = asyncio.Semaphore(_MAX_FETCHES)

    async def of(self, domain: str) -> EffectivePolicy:
        """Return the policy that applies to `domain` (A-labels, lower case) now.

        Raises DatabaseUnavailable.
        """
        found, kept = await asyncio.gather(self._txt(f"_mta-sts.{domain}"), self._loads.submit(domain))
        now = clock.now()
        wanted = record_id(found.values) if isinstance(found, Records) else None
        if wanted is None or (kept is not None and kept.record_id == wanted):
            # No record, no answer, or no change: what was promised stands (RFC 8461 5).
            if wanted is not None and kept is not None and now - kept.fetched_at > REFRESH:
                self._refresh(domain, wanted, now)
            return _held(kept, found.until, now)
        policy = await self._fetched(domain, wanted, now)
        if policy is None:
            return _held(kept, min(found.until, clock.monotonic() + FETCH_AGAIN_S), now)
        return EffectivePolicy(policy, min(found.until, clock.monotonic() + policy.max_age_s))

    async def forget_expired(self, at: datetime) -> None:
        """Delete what has expired."""
        await _FORGET.execute(self._pool, at)

    async def close(self) -> None:
        """Cancel the fetches under way."""
        tasks = list(self._refreshes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _txt(self, name: str) -> Answered[bytes]:
        try:
            async with asyncio.timeout(TXT_S):
                return await self._resolver.txt(name)
        except TimeoutError:  # the look-up goes on, and the next message finds its answer
            return TemporaryFailure(f"TXT of {name}: no answer within {TXT_S:g} s", clock.monotonic() + FAILURE_TTL_S)

    # -- fetching ------------------------------------------------------------------------------

    async def _fetched(self, domain: str, wanted: str, now: datetime) -> StsPolicy | None:
        """Return the policy as fetched just now; None if there is none, and for some minutes after a failure without
        asking."""
        if self._failed.get((domain, wanted), 0.0) > clock.monotonic():
            return None
        return await asyncio.shield(self._refresh(domain, wanted, now))

    def _refresh(self, domain: str, wanted: str, now: datetime) -> "asyncio.Task[StsPolicy | None]":
        task = self._refreshes.get(domain)
        if task is None:
            task = self._refreshes[domain] = asyncio.create_task(self._fetch(domain, wanted, now))
            task.add_done_callback(lambda _: self._refreshes.pop(domain, None))
        return task

    async def _fetch(self, domain: str, wanted: str, now: datetime) -> StsPolicy | None:
        if self._failed.get((domain, wanted), 0.0) > clock.monotonic():
            return None
        async with self._slots:
            body = await self._fetcher.fetch(domain)
        if isinstance(body, TlsFailure):
            self._fault(domain, wanted, body)
            return None
        try:
            policy = parse(body)
        except InvalidPolicy as error:
            self._fault(domain, wanted, TlsFailure(TlsFailureType.STS_INVALID, str(error)))
            return None
        self._failed.pop((domain, wanted), None)
        expires_at = now + timedelta(seconds=policy.max_age_s)
        try:
            await _SAVE.execute(self._pool, domain, wanted, body.decode(), now, expires_at)
        except DatabaseUnavailable as error:
            # This delivery uses the policy all the same.
            _log.warning("MTA-STS policy not stored", domain=domain, error=repr(error))
        return policy

    def _fault(self, domain: str, wanted: str, fault: TlsFailure) -> None:
        _log.info("no MTA-STS policy", domain=domain, type=fault.kind.value, reason=fault.reason)
        self._failed.pop((domain, wanted), None)
        if len(self._failed) >= _MAX_FAILED:
            self._failed.popitem(last=False)
        self._failed[domain, wanted] = clock.monotonic() + FETCH_AGAIN_S
        self._counts.count_fetch(domain, fault)

    async def _load(self, domains: Sequence[str]) -> list[StoredPolicy | None]:
        """Load the policies of many domains in one query: a queue of thousands asks for thousands at once."""
        rows = await _LOAD.fetch(self._pool, list(domains), clock.now())
        found = {row.domain: row for row in rows}
        return [found.get(domain) for domain in domains]


def _held(kept: StoredPolicy | None, until: float, now: datetime) -> EffectivePolicy:
    if kept is None:
        return EffectivePolicy(None, until)
    left_s = (kept.expires_at - now).total_seconds()
    return EffectivePolicy(parse(kept.policy.encode()), min(until, clock.monotonic() + left_s))
