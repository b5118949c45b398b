"""Import and export contacts as files: CSV, and JSON with one object a line."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Meta, Struct

from api.areas.contacts.resources import contact_of, import_reply, list_id
from api.areas.contacts.schemas import Contact, ContactImportReply, ListId
from api.http.download import streamed_file
from api.http.operation import Area, Call, LimitedKeys, Operation, Streamed
from engine.audience.contacts import exports, imports, lists_store
from engine.audience.contacts.files import MAX_FILE_ROWS, FileFormat, read_file
from engine.audience.contacts.types import Consent, ContactFilters
from engine.base.errors import ErrorType

MAX_FILE_CHARACTERS = 10_000_000
MAX_FILE_BYTES = 20 * 1024 * 1024
_ENCODER = msgspec.json.Encoder()


class ContactFileIn(Struct, forbid_unknown_fields=True, kw_only=True):
    """A file of contacts as text, for `POST /v1/contacts/import/file`."""

    format: FileFormat
    content: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_FILE_CHARACTERS,
            description="CSV with a header line: `email`, `name`, and a column for each field, such as `plan`, "
            "`seats:number` and `trial:boolean`; or one object a line, as rows of an import",
        ),
    ]
    consent: Consent
    list: ListId | None = None


class ContactsExportQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/contacts/export`."""

    format: FileFormat = FileFormat.NDJSON
    list: ListId | None = None


async def import_file(call: Call, body: ContactFileIn) -> ContactImportReply:
    """Create and change the contacts of a file, 1,000 in a transaction."""
    rows = await asyncio.to_thread(read_file, body.format, body.content)
    result = await imports.import_many(
        call.services.pool,
        call.account_id,
        rows,
        consent=body.consent,
        list_id=list_id(body.list, "list"),
        actor=call.actor,
    )
    return import_reply(call, result)


async def export(call: Call, query: ContactsExportQuery) -> Streamed:
    """Stream the contacts, newest first."""
    pool, account = call.services.pool, call.account_id
    wanted = ContactFilters(list_id=list_id(query.list, "list"))
    if wanted.list_id is not None:
        await lists_store.check_known(pool, account, [wanted.list_id])
    if query.format is FileFormat.CSV:
        columns = await exports.field_columns(pool, account)
        return streamed_file(
            exports.csv_pages(pool, account, wanted, columns), "text/csv; charset=utf-8", "contacts.csv"
        )
    return streamed_file(_lines(pool, account, wanted), "application/x-ndjson", "contacts.ndjson")


async def _lines(pool: asyncpg.Pool, account: UUID, wanted: ContactFilters) -> AsyncGenerator[bytes, None]:
    async for rows in exports.pages(pool, account, wanted):
        yield b"".join(_ENCODER.encode(contact_of(row)) + b"\n" for row in rows)


_KEYS = Area("Contacts", reads=("contacts:read",), writes=("contacts:write",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/contacts/import/file",
        import_file,
        f"Import a CSV or newline-delimited JSON of up to {MAX_FILE_ROWS:,} contacts",
        _KEYS,
        note="Works as `POST /v1/contacts/import` does, 1,000 rows in a transaction: after a failure, send the file "
        "again. Columns that only an export has, such as `id` and `consent`, are left out.",
        max_body_bytes=MAX_FILE_BYTES,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation(
        "GET",
        "/v1/contacts/export",
        export,
        "Export all contacts, one JSON object per line or as CSV",
        _KEYS,
        note="`format=csv` returns text/csv. Texts that a spreadsheet would read as a formula begin with an "
        "apostrophe, which an import removes.",
        limited_keys=LimitedKeys.FREE,
        reply=Contact,
        reply_type="application/x-ndjson",
        other_reply_types=("text/csv",),
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
)
