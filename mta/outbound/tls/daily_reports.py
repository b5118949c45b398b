"""Reads the content of a day's TLS report about one policy domain (RFC 8460)."""

from datetime import date

import asyncpg

from engine.store.queries import Queries
from mta.outbound.tls.report_mail import DailyTlsReport, SessionCount

_SQL = Queries.beside(__file__, "daily_reports.sql")
_COUNTED = _SQL.rows("counted_sessions", SessionCount)
_POLICY = _SQL.command("served_policy")


class DailyTlsReports:
    """The reports of one submitter: `submitter` is our host name, `contact` the address that reports come from."""

    def __init__(self, pool: asyncpg.Pool, *, submitter: str, contact: str) -> None:
        self._pool = pool
        self._submitter = submitter
        self._contact = contact

    async def of(self, day: date, domain: str) -> DailyTlsReport:
        """Return the report of a UTC day about a policy domain (A-labels). Raises DatabaseUnavailable."""
        return DailyTlsReport(
            day=day,
            domain=domain,
            counts=await _COUNTED.fetch(self._pool, day, domain),
            policy_text=next((row["policy"] for row in await _POLICY.records(self._pool, domain)), None),
            submitter=self._submitter,
            contact=self._contact,
        )
