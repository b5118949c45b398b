"""Posts TLS reports to the https destinations that domains name (RFC 8460 3), each once; retries failures for a day.

A destination is a stranger's URL, so the guarded client dials it. Its certificate is not checked, as RFC 8460 3 allows:
a report about broken TLS must not wait for TLS, and it tells statistics about the domain that asked for them.
"""

import asyncio
import ssl
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import structlog
import yarl

from engine.base.netaddr import is_public
from engine.base.settings import Settings
from engine.store.database_errors import DatabaseUnavailable
from engine.store.http_client import HttpClient, HttpFailure, any_address
from engine.store.queries import Queries
from engine.store.resolver import Resolver
from mta.outbound.tls.daily_reports import DailyTlsReports
from mta.outbound.tls.report_mail import DailyTlsReport, packed

POST_S: Final = 30.0  # for all of a request
MAX_ANSWER: Final = 1_024  # octets of it that are read
WAITS_S: Final = (900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)  # between tries; the last one again and again
LASTS: Final = timedelta(hours=24)
MAX_AT_ONCE: Final = 100  # destinations a round
AT_THE_SAME_TIME: Final = 8

_SQL = Queries.beside(__file__, "report_posting.sql")
_TAKE = _SQL.command("take_posts")
_POSTED = _SQL.command("posted")
_GIVE_UP = _SQL.command("give_up_post")

_log = structlog.get_logger("tls reports")


async def post_due(pool: asyncpg.Pool, settings: Settings, now: datetime, reports: DailyTlsReports) -> int:
    """Post what is due at `now`; return how many destinations took their report.

    A destination is put off before it is asked: a process that dies here asks again later, and two processes never ask
    the same one. Raises DatabaseUnavailable if nothing could be taken.
    """
    due = await _TAKE.records(pool, now, MAX_AT_ONCE, WAITS_S)
    if not due:
        return 0
    resolver = Resolver.from_settings(settings)
    client = client_for(settings, resolver)
    slots = asyncio.Semaphore(AT_THE_SAME_TIME)

    async def one(row: asyncpg.Record) -> bool:
        async with slots:
            try:
                return await _post(pool, client, await reports.of(row["day"], row["domain"]), row, now)
            except (DatabaseUnavailable, OSError) as error:
                # The receiver may have taken the report: it gets it once more then, under the same id.
                _log.warning("TLS report posted, but not recorded", domain=row["domain"], error=repr(error))
                return False

    try:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(one(row)) for row in due]
        return sum(task.result() for task in asked)
    finally:
        await client.close()
        await resolver.close()


def client_for(settings: Settings, resolver: Resolver) -> HttpClient:
    """Return a client for public addresses, and private ones where private mail hosts are allowed; any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HttpClient(resolver, may_dial=any_address if settings.allow_private_mx else is_public, tls=context)


async def _post(
    pool: asyncpg.Pool, client: HttpClient, report: DailyTlsReport, row: asyncpg.Record, now: datetime
) -> bool:
    place = (report.day, report.domain, row["url"])
    headers = {"Content-Type": "application/tlsrpt+gzip", "User-Agent": f"{report.submitter} TLS reports"}
    answer = await client.post(
        yarl.URL(row["url"], encoded=True), packed(report), headers, timeout_s=POST_S, max_bytes=MAX_ANSWER
    )
    if not isinstance(answer, HttpFailure) and 200 <= answer.status < 300:
        await _POSTED.execute(pool, *place)
        return True
    said = answer.text if isinstance(answer, HttpFailure) else f"it answers {answer.status}"
    if now >= row["ends_at"]:
        await _GIVE_UP.execute(pool, *place)
        _log.warning("TLS report given up", domain=report.domain, url=row["url"], error=said)
    else:
        _log.info("TLS report postponed", domain=report.domain, url=row["url"], error=said)
    return False
