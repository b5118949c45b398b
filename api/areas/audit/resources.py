"""The account log for auditors: `/v1/audit/events`, `/export`, `/verify`, and a short result for the account."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from api.areas.audit.schemas import (
    AuditEvent,
    AuditExportQuery,
    AuditPage,
    AuditQuery,
    AuditVerdict,
    ExportedEvent,
    ExportHeader,
    ExportRecord,
    ExportTrailer,
    HashedBy,
    HeadOfLog,
    Intact,
)
from api.http.download import streamed_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Streamed
from engine.accounts.audit import rules, store
from engine.accounts.audit.types import ChainVerdict, ExportRow, LogHead
from engine.accounts.audit.verifier import MAX_WAIT_S
from engine.base import clock, ids

NDJSON: Final = "application/x-ndjson"
DEADLINE_S: Final = MAX_WAIT_S + 5.0
_HASHED_BY = HashedBy(
    algorithm="SHA-256",
    encoding="UTF-8; hashes in lower-case hex",
    formula='hash = SHA-256(prevHash + "\\n" + seq + "\\n" + occurredAt + "\\n" + payload)',
    first_prev_hash=bytes(32).hex(),
)
_ENCODER = msgspec.json.Encoder()
_READS = asyncio.Semaphore(4)  # pages of exports at once: sends share the connections to PostgreSQL


async def list_events(call: Call, query: AuditQuery) -> AuditPage:
    """Return a page of the log, without verifying the chain."""
    found = await store.page(
        call.services.pool,
        call.account_id,
        limit=query.limit,
        before=query.before,
        type_=rules.checked_type(query.type),
        by=query.by,
        times=rules.time_range(query.from_, query.until),
    )
    data = [
        AuditEvent(
            row.seq,
            ids.format_id(ids.Kind.EVENT, row.id),
            row.type,
            row.occurred_at,
            row.payload,
            row.hash.hex(),
            _hex(found.previous.get(row.seq)),
        )
        for row in found.rows
    ]
    return AuditPage(data, None if found.before is None else str(found.before))


async def verify(call: Call) -> AuditVerdict:
    """Verify the whole chain; answer 200 whether or not it is intact."""
    verdict: ChainVerdict = await call.services.verifier.verdict(call.account_id)
    return AuditVerdict(
        *_narrow(verdict),
        purged_through_seq=verdict.head.purged_through_seq,
        events=verdict.events,
        erased_entries=verdict.erased,
        head=_head(verdict.head),
        as_of=clock.iso(verdict.as_of),
    )


async def verify_account(call: Call) -> Intact:
    """Verify the whole chain and return the result without details."""
    return Intact(*_narrow(await call.services.verifier.verdict(call.account_id)))


async def export(call: Call, query: AuditExportQuery) -> Streamed:
    """Export the log as a file: a header, a record for each event, a trailer."""
    times = rules.time_range(query.from_, query.until)
    exported = await store.open_export(call.services.pool, call.account_id, times)
    header = ExportHeader(
        account=ids.format_id(ids.Kind.ACCOUNT, call.account_id),
        created_at=clock.iso(clock.now()),
        from_=query.from_,
        until=query.until,
        hash=_HASHED_BY,
        head=_head(exported.head),
        purged_through_seq=exported.head.purged_through_seq,
        purged_hash=exported.head.purged_hash.hex(),
    )
    return streamed_file(_lines(header, exported), NDJSON, rules.log_name(call.account_id))


async def _lines(header: ExportHeader, exported: store.Export) -> AsyncGenerator[bytes, None]:
    yield _ENCODER.encode_lines([header])
    async with aclosing(exported.pages()) as pages:
        while True:
            async with _READS:
                page = await anext(pages, None)
            if page is None:
                break
            if page:
                yield _ENCODER.encode_lines([_record(row) for row in page])
    broken = exported.broken
    yield _ENCODER.encode_lines([
        ExportTrailer(
            events=exported.events,
            intact=broken is None,
            broken_at=None if broken is None else broken.at,
            problem=None if broken is None else broken.problem,
        )
    ])  # fmt: skip


def _record(row: ExportRow) -> ExportedEvent:
    return ExportedEvent(
        seq=row.seq,
        id=ids.format_id(ids.Kind.EVENT, row.id),
        type=row.type,
        occurred_at=row.occurred_at,
        payload=row.payload,
        hash=row.hash.hex(),
        prev_hash=_hex(row.previous) if row.before == row.seq - 1 else None,
    )


def _narrow(verdict: ChainVerdict) -> tuple[bool, int | None, str | None]:
    broken = verdict.broken
    return (True, None, None) if broken is None else (False, broken.at, broken.problem)


def _head(head: LogHead) -> HeadOfLog:
    return HeadOfLog(head.seq, head.hash.hex())


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()


_KEYS = Area("Audit", reads=("messages:read",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
_KEYS_ACCOUNT = Area("Account", reads=("account:read",), limited_keys=LimitedKeys.FREE)
OPERATIONS = (
    Operation("GET", "/v1/audit/events", list_events, "List the account log, newest first", _KEYS, lagging=True),
    Operation(
        "GET",
        "/v1/audit/export",
        export,
        "Export the account log with the result of its verification",
        _KEYS,
        reply=ExportRecord,
        reply_type=NDJSON,
        lagging=True,
    ),
    Operation(
        "GET", "/v1/audit/verify", verify, "Verify the hash chain of the account log", _KEYS, deadline_s=DEADLINE_S
    ),
    Operation(
        "GET",
        "/v1/account/verify",
        verify_account,
        "Check that the account log is intact",
        _KEYS_ACCOUNT,
        deadline_s=DEADLINE_S,
    ),
)
