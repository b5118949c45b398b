"""Store report mails as received, and hand them to the worker in batches."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids
from engine.receiving.reports.types import DueReport, ReportMail, ReportPurpose, ReportResult, ReportRow
from engine.store.queries import Conn, Queries, Source
from engine.store.row_sets import Column, RowSet

KEPT = timedelta(days=7)  # of reports that changed nothing, so that the operator can look at them
LEASE = timedelta(minutes=5)  # a worker that ended while it read a report leaves it to the next after this time
# Reports have at most 10 MiB, which base64 makes 4/3 as large; of a larger mail no bytes are kept.
MAX_RAW_BYTES = 15 * 1024 * 1024
MAX_OPERATOR_BYTES = 1024 * 1024  # of mail to `postmaster@` and `abuse@`; the rest is dropped
ROW_BYTES = 1024  # on disk, of a report without its octets, with its index entries; rounded up
MAX_TAKEN_BYTES = 16 * 1024 * 1024  # of reports that one worker holds, and the last of them
# Of DMARC and TLS reports that are read in a row, and the last of them. Compressed at most 1,000 times as small, they
# unpack to little more than one report of the largest size, so that other reports wait for about two such ones.
MAX_DOMAIN_BYTES = 64 * 1024
MAX_FORGOTTEN = 5_000  # rows per statement


class _StoredReport(Struct, frozen=True):
    id: UUID
    mail: ReportMail


class ReportCount(Struct, frozen=True):
    """Report mails of one purpose, state and result."""

    purpose: str
    state: str
    result: str
    mails: int
    oldest: datetime


def _of_mail(name: str, type_: str) -> Column:
    return Column(name, type_, value=lambda one: getattr(one.mail, name))


REPORT = RowSet(
    "report",
    _StoredReport,
    Column("id"),
    _of_mail("purpose", "text"),
    _of_mail("local", "text"),
    _of_mail("host", "text"),
    Column("envelope_from", "text", value=lambda one: one.mail.sender),
    Column("remote_ip", "inet", value=lambda one: ip_address(one.mail.remote_ip)),
    _of_mail("received_at", "timestamptz"),
    Column("size_bytes", "integer", value=lambda one: len(one.mail.raw)),
    _of_mail("digest", "bytea"),
    Column("raw", "bytea", value=lambda one: kept_octets(one.mail)),
    Column("reporter_address", "text", value=lambda one: one.mail.reporter and one.mail.reporter.address),
    Column("signed_by", "text", value=lambda one: one.mail.reporter and one.mail.reporter.signed_by),
    Column("due_at", "timestamptz", value=lambda one: one.mail.received_at),
)

FINISH = RowSet(
    "finish",
    ReportResult,
    Column("id"),
    Column("state", "text", value=lambda one: one.state.value, repeats=True),
    Column("result", repeats=True),
    Column("reason"),
    Column("account_id"),
    Column("message_id"),
)

_SQL = Queries.beside(__file__)
# Other statements that finish reports include it, with the row set FINISH.
REPORT_FINISH = _SQL.fragment("report_finish")
_ADD = _SQL.wide("add_reports", REPORT)
_TAKE = _SQL.rows("take_reports", DueReport)
_LOCK_WAITING = _SQL.command("lock_waiting")
_FINISH = _SQL.wide("finish_reports", FINISH)
_DROP = _SQL.command("drop_report")
_POSTPONE = _SQL.command("postpone_reports")
_FORGET = _SQL.command("forget_reports")
_LIST = _SQL.rows("list_reports", ReportRow)
_READ = _SQL.rows("read_report", DueReport)
_READ_ROW = _SQL.rows("read_report_row", ReportRow)
_COUNTS = _SQL.rows("reports_by_state", ReportCount)
_USED = _SQL.command("used_octets")
_FORGET_BEYOND = _SQL.command("forget_beyond")


async def add(source: Source, mails: Sequence[ReportMail]) -> None:
    """Store report mails by one statement; a mail that is stored already is left out.

    Mail to an address with a forged token gets the same reply as any other; no bytes of it are kept.
    """
    if mails:
        rows = [_StoredReport(one_id, mail) for one_id, mail in zip(_ids(mails), mails, strict=True)]
        await _ADD.run(source, REPORT.of(rows))


def kept_octets(mail: ReportMail) -> bytes | None:
    """Return the octets to store: none of mail that unsubscribes, whose address says all, none with a forged token, and
    none above the limit.
    """
    if mail.purpose is ReportPurpose.OPERATOR:
        return mail.raw[:MAX_OPERATOR_BYTES]
    if mail.purpose is ReportPurpose.UNSUBSCRIBE or not mail.is_genuine or len(mail.raw) > MAX_RAW_BYTES:
        return None
    return mail.raw


def digest(raw: bytes, purpose: ReportPurpose) -> bytes:
    """Return the SHA-256 of a mail's body, or of the whole mail if it has no body.

    Header fields are left out because each path adds its own, such as Received. Mail that unsubscribes mostly has no
    text, so all of it counts: a person who came back may unsubscribe once more.
    """
    if purpose is ReportPurpose.UNSUBSCRIBE:
        return sha256(raw).digest()
    for separator in (b"\r\n\r\n", b"\n\n"):
        at = raw.find(separator)
        if at >= 0 and raw[at:].strip():
            return sha256(memoryview(raw)[at + len(separator) :]).digest()
    return sha256(raw).digest()


async def take(source: Source, at: datetime, limit: int) -> list[DueReport]:
    """Take waiting reports that are due at `at`, except those about domains, up to about MAX_TAKEN_BYTES; unless
    finished they are due again after `LEASE`.
    """
    return await _taken(source, at, limit, MAX_TAKEN_BYTES, about_domains=False)


async def take_about_domains(source: Source, at: datetime, limit: int) -> list[DueReport]:
    """Take waiting DMARC and TLS reports, as `take`, up to about MAX_DOMAIN_BYTES."""
    return await _taken(source, at, limit, MAX_DOMAIN_BYTES, about_domains=True)


async def _taken(source: Source, at: datetime, limit: int, octets: int, *, about_domains: bool) -> list[DueReport]:
    found = await _TAKE.fetch(source, at, limit, at + LEASE, octets, about_domains)
    return sorted(found, key=lambda one: one.id)


async def lock_waiting(connection: Conn, wanted: Iterable[UUID]) -> set[UUID]:
    """Lock the reports that no other worker has finished, and return their ids."""
    return {row["id"] for row in await _LOCK_WAITING.records(connection, list(wanted))}


async def finish(source: Source, results: Sequence[ReportResult]) -> None:
    """Record results; a report that is not waiting any more stays unchanged."""
    if results:
        await _FINISH.run(source, FINISH.of(results))


async def drop(source: Source, report: UUID) -> None:
    """Delete a report that repeats another one."""
    await _DROP.execute(source, report)


async def postpone(source: Source, wanted: Iterable[UUID], until: datetime) -> None:
    """Leave reports waiting until `until`."""
    await _POSTPONE.execute(source, list(wanted), until)


async def forget(source: Source, at: datetime) -> int:
    """Delete reports that arrived over `KEPT` before `at`; return how many there were."""
    gone, floor = 0, ids.floor_of(clock.milliseconds(at - KEPT))
    while True:
        count = int((await _FORGET.execute(source, floor, MAX_FORGOTTEN)).rpartition(" ")[2])
        gone += count
        if count < MAX_FORGOTTEN:
            return gone


async def used(source: Source) -> int:
    """Return the octets that all reports use."""
    return int((await _USED.records(source, ROW_BYTES))[0]["octets"])


async def forget_beyond(source: Source, limit: int) -> int:
    """Delete the oldest reports that have been read beyond `limit` octets; return how many there were."""
    if await used(source) <= limit:
        return 0
    return int((await _FORGET_BEYOND.execute(source, limit, ROW_BYTES)).rpartition(" ")[2])


async def page(
    source: Source, *, before: UUID | None, state: str | None, purpose: str | None, limit: int
) -> list[ReportRow]:
    """Return at most `limit` reports, newest first, for the operator."""
    return await _LIST.fetch(source, before or UUID(int=2**128 - 1), state, purpose, limit)


async def read_row(source: Source, report: UUID) -> ReportRow | None:
    """Return one report without its bytes."""
    return await _READ_ROW.first(source, report)


async def read(source: Source, report: UUID) -> DueReport | None:
    """Return one report with its bytes."""
    return await _READ.first(source, report)


async def counts(source: Source) -> list[ReportCount]:
    """Count the stored reports by purpose, state and result."""
    return await _COUNTS.fetch(source)


def _ids(mails: Sequence[ReportMail]) -> Iterable[UUID]:
    """Return an id for each mail whose time is that of its arrival, which decides how long it is kept."""
    return [ids.uuid7(clock.milliseconds(mail.received_at)) for mail in mails]
