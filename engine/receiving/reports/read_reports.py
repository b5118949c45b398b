"""Read report mails and mail to unsubscribe addresses, as the MX stored them, and apply them.

Several workers may do it at once.

Reports are taken for some minutes → parsed in a thread, a batch at a time → applied: the bounces of the batch in one
transaction, complaints and opt-outs each in its own. Reports about domains are taken apart, a few after each lot of
others, and read one by one: strangers can make them large, and bounces wait for a few of them only. Each effect is
idempotent: reports that a crash interrupted are read again. Reports are not urgent: the worker pauses after each batch,
so that they don't slow the sending of mail.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import asyncpg
import structlog

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.late_notices import LateNotice
from engine.mail import return_path
from engine.receiving.analytics import delivery, dmarc, rules, tls
from engine.receiving.reports import domain_reports, feedback, late_bounce, store
from engine.receiving.reports.report_reading import (
    ComplaintNotice,
    DomainNotice,
    ReadReport,
    UnsubscribeNotice,
    read_report,
)
from engine.receiving.reports.report_tokens import ReportKeys, keys_of
from engine.receiving.reports.types import DueReport, ReportResult, ReportState
from engine.sending.unsubscribes import service as unsubscribe
from engine.sending.unsubscribes.rules import changes
from engine.sending.unsubscribes.types import LinkChoice, LinkSource, LinkState, LinkUse
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job
from engine.store.queries import Query

MAX_TAKEN = 200
BATCH = 25  # reports applied together: other mail of their accounts waits for the transaction
BUDGET_S = 20.0
SHARE = 0.5  # of the time, that reading reports may take; measured: ops/decisions/0058
# A report may come before the delivery that it is about is on record, above all while PostgreSQL was unavailable.
EARLY_FOR = timedelta(hours=1)
FIRST_RETRY, MAX_RETRY = timedelta(seconds=5), timedelta(minutes=10)
MAX_TRIES = 5  # of a report that fails with an unexpected error
MAX_FORGOTTEN = 5_000  # rows per statement

Value = TypeVar("Value")

_log = structlog.get_logger("reports")


async def read_due(pool: asyncpg.Pool, settings: Settings, *, budget_s: float = BUDGET_S) -> int:
    """Read the reports that are due, for up to `budget_s` seconds; return how many there were."""
    if settings.key_pepper is None:  # without it, no report address can be verified
        return 0
    ends, count = time.monotonic() + budget_s, 0
    while time.monotonic() < ends:
        done = await read_some(pool, settings)
        if not done:
            break
        count += done
    return count


async def read_some(pool: asyncpg.Pool, settings: Settings) -> int:
    """Read one lot of the reports about mail that are due, then a few about domains; return how many there were."""
    keys = keys_of(settings)
    taken = await store.take(pool, clock.now(), MAX_TAKEN)
    for first in range(0, len(taken), BATCH):
        await _with_pause(ReportBatch(pool, keys, settings, taken[first : first + BATCH]).apply())
    about_domains = await store.take_about_domains(pool, clock.now(), BATCH)
    if about_domains:
        await _with_pause(ReportBatch(pool, keys, settings, about_domains).apply_one_by_one())
    return len(taken) + len(about_domains)


async def _with_pause(work: Awaitable[None]) -> None:
    """Do a piece of work, then pause so that it takes SHARE of the time."""
    began = time.monotonic()
    await work
    await asyncio.sleep((time.monotonic() - began) * (1 / SHARE - 1))


async def forget_old(pool: asyncpg.Pool, at: datetime) -> None:
    """Delete report mails, the rows of DMARC and TLS reports, and delivery counts that are past their time."""
    await store.forget(pool, at)
    oldest = at.date() - timedelta(days=rules.KEPT_DAYS)
    await delivery.forget(pool, oldest)
    for query in (*dmarc.FORGET, *tls.FORGET):
        while await _deleted(pool, query, oldest) == MAX_FORGOTTEN:
            pass


JOBS = (
    Job("reports", every_s=1, run=read_due),
    Job("old reports", every_s=3600, run=lambda pool, _: forget_old(pool, clock.now())),
)


async def _deleted(pool: asyncpg.Pool, query: Query, *arguments: object) -> int:
    return int((await query.execute(pool, *arguments, MAX_FORGOTTEN)).rpartition(" ")[2])


class ReportBatch:
    """Reports that this worker has taken; applies each of them once."""

    def __init__(self, pool: asyncpg.Pool, keys: ReportKeys, settings: Settings, batch: Sequence[DueReport]) -> None:
        self._pool = pool
        self._keys = keys
        self._mail_host = settings.mail_host
        self._reporters = settings.complaint_reporters
        self._at = clock.now()
        self._due = {one.id: one for one in batch}
        self._overdue = {one.id for one in batch if one.received_at < self._at - EARLY_FOR}

    async def apply(self) -> None:
        """Apply the reports; one that fails does not hold up the others."""
        found = await asyncio.to_thread(self._parsed, list(self._due.values()))
        read = [await self._guarded(self._due[key], self._applied(one)) for key, one in found.items()]
        await store.finish(self._pool, [one for one in read if isinstance(one, ReportResult)])
        bounces = [one for one in read if isinstance(one, LateNotice)]
        if bounces and not await self._bounced(bounces):
            for one in bounces:
                await self._guarded(self._due[one.report], self._record([one]))

    async def apply_one_by_one(self) -> None:
        """Parse and apply reports about domains: each may hold 100,000 rows, so only one is in memory at a time."""
        read = [await self._guarded(one, self._read(one)) for one in self._due.values()]
        await store.finish(self._pool, [one for one in read if isinstance(one, ReportResult)])

    def _parsed(self, reports: Sequence[DueReport]) -> dict[UUID, ReadReport | Exception]:
        """Parse reports; the exception of one that fails takes the place of its content."""
        found: dict[UUID, ReadReport | Exception] = {}
        for report in reports:
            try:
                found[report.id] = read_report(report, self._keys)
            except Exception as error:  # noqa: BLE001 - one report must not hold up the others
                found[report.id] = error
        return found

    async def _read(self, report: DueReport) -> ReportResult | LateNotice | None:
        """Parse and apply one report."""
        return await self._applied(await asyncio.to_thread(read_report, report, self._keys))

    async def _applied(self, read: ReadReport | Exception) -> ReportResult | LateNotice | None:
        """Apply a parsed report, unless it is a bounce: the batch applies those together. Raises the error of one that
        could not be parsed.
        """
        if isinstance(read, Exception):
            raise read
        if isinstance(read, ComplaintNotice):
            return await self._complained(self._due[read.report], read)
        if isinstance(read, DomainNotice):
            await domain_reports.apply(self._pool, read)
            return None
        if isinstance(read, UnsubscribeNotice):
            await self._unsubscribe(read)
            return None
        return read

    async def _unsubscribe(self, notice: UnsubscribeNotice) -> None:
        """Apply an opt-out together with its result, so that a crash can't repeat it after the person has undone it.

        No row stays of mail that changes nothing: the address takes any number of them.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if await store.lock_waiting(connection, [notice.report]):
                use = LinkUse(notice.link, LinkChoice.ALL, LinkSource.MAIL)
                state = (await unsubscribe.apply(connection, [use])).get(notice.link)
                if state is not None and not changes(state, use.choice):
                    await store.drop(connection, notice.report)
                else:
                    await store.finish(connection, [_opted_out(notice, state)])

    async def _complained(self, report: DueReport, notice: ComplaintNotice) -> ReportResult | None:
        result = await feedback.apply(
            self._pool,
            notice,
            self._keys,
            at=self._at,
            mail_host=self._mail_host,
            reporters=self._reporters,
            overdue=report.id in self._overdue,
        )
        if result is None:
            await self._postpone(report)
        return result

    async def _bounced(self, bounces: Sequence[LateNotice]) -> bool:
        """Apply the bounces of the batch; return False if one of them is at fault, with nothing written."""
        try:
            await self._record(bounces)
        except DatabaseUnavailable:
            raise
        except Exception:  # noqa: BLE001 - they are applied one by one then, where the cause is logged
            return False
        return True

    async def _record(self, bounces: Sequence[LateNotice]) -> None:
        later = await late_bounce.record(
            self._pool, bounces, at=self._at, mail_host=self._mail_host, overdue=self._overdue
        )
        for report in later:
            await self._postpone(self._due[report])

    async def _postpone(self, report: DueReport) -> None:
        wait = min(FIRST_RETRY * 2 ** min(report.tries - 1, 10), MAX_RETRY)
        await store.postpone(self._pool, [report.id], self._at + wait)

    async def _guarded(self, report: DueReport, work: Awaitable[Value]) -> Value | None:
        """Return the result of `work`, None if it failed; give a report up that failed MAX_TRIES times."""
        try:
            return await work
        except DatabaseUnavailable:
            raise
        except Exception:  # noqa: BLE001 - one report must not hold up the others
            _log.exception("report not applied", report=str(report.id), tries=report.tries)
        if report.tries >= MAX_TRIES:
            reason = f"Reading failed {report.tries} times; the log of the worker says why."
            origin = return_path.origin(self._keys.return_path, f"{report.local}@{report.host}")
            given_up = ReportResult(
                id=report.id, state=ReportState.UNREADABLE, result="failed", reason=reason,
                message_id=None if origin is None else origin.message_id,
            )  # fmt: skip
            await store.finish(self._pool, [given_up])
        return None


def _opted_out(notice: UnsubscribeNotice, state: LinkState | None) -> ReportResult:
    """Return the result of mail to an unsubscribe address; `state` is None if the link isn't stored any more."""
    if state is None:
        reason = "The account that sent the link is erased."
        return ReportResult(id=notice.report, state=ReportState.IGNORED, result="no_link", reason=reason)
    return ReportResult(
        id=notice.report,
        state=ReportState.APPLIED,
        result="opted_out",
        reason=f"{state.address} has unsubscribed.",
        account_id=state.account_id,
    )
