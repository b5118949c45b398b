"""Counts TLS sessions for reports (RFC 8460): by policy domain and UTC day, gathered in memory, written in batches.

Only domains with a policy are counted. What a process has not written when it dies is lost: a report is statistics.
"""

from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from typing import Literal

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.store.database_errors import DatabaseUnavailable
from engine.store.queries import Queries, columns
from mta.smtp.client.tls_failures import TlsFailure

KEEP = timedelta(days=60)  # a report is due the next day; two months let an operator look back
MAX_KEYS = 20_000  # while Postgres is away; further sessions are not counted

PolicyType = Literal["sts", "tlsa"]  # RFC 8460 4.2

_SQL = Queries.beside(__file__, "report_counts.sql")
_COUNT = _SQL.command("count_sessions")
_FORGET = _SQL.command("forget_days")


class TlsSession(Struct, frozen=True):
    """A TLS session with a server of a domain that has a policy. Without `fault` it met the policy."""

    policy: PolicyType
    mx: str
    ip: str
    fault: TlsFailure | None = None


class _Count(Struct):
    ip: str
    reason: str
    sessions: int


_Key = tuple[date, str, str, str, str]  # day, domain, policy, result, mx


class TlsReportCounts:
    """The counts of one process: `count` as it goes, `flush` every few seconds and at the end."""

    def __init__(self, pool: asyncpg.Pool, now: Callable[[], datetime] = clock.now) -> None:
        self._pool = pool
        self._now = now
        self._counts: dict[_Key, _Count] = {}

    def count(self, domain: str, sessions: Iterable[TlsSession]) -> None:
        """Count sessions for a policy domain (A-labels)."""
        today = self._now().date()
        for one in sessions:
            result = "success" if one.fault is None else one.fault.kind.value
            reason = "" if one.fault is None else one.fault.reason[:200]
            self._add((today, domain, one.policy, result, one.mx), _Count(one.ip, reason, 1))

    def count_fetch(self, domain: str, fault: TlsFailure) -> None:
        """Count a policy that could not be fetched or read: no server was asked (RFC 8460 4.3.2.2)."""
        self.count(domain, (TlsSession("sts", "", "", fault),))

    async def flush(self) -> None:
        """Write what has gathered; raises DatabaseUnavailable and keeps it then."""
        counts, self._counts = self._counts, {}
        if not counts:
            return
        # In the order of the key: two processes must not wait for one another's rows.
        rows = [
            (*key, one.ip, one.reason, one.sessions) for key, one in sorted(counts.items(), key=lambda item: item[0])
        ]
        try:
            await _COUNT.execute(self._pool, *columns(rows, 8))
        except DatabaseUnavailable:
            for key, one in counts.items():
                self._add(key, one)
            raise

    async def forget(self) -> None:
        """Delete counts that are too old for any report."""
        await _FORGET.execute(self._pool, self._now().date() - KEEP)

    def _add(self, key: _Key, more: _Count) -> None:
        known = self._counts.get(key)
        if known is not None:
            known.sessions += more.sessions
        elif len(self._counts) < MAX_KEYS:
            self._counts[key] = more
