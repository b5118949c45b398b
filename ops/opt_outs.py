"""Opt-outs of the contact lists of any account as files: `ops opt-outs`."""

from pathlib import Path
from typing import IO, Any

import asyncpg
import msgspec

from engine.audience import topic_opt_outs
from engine.audience.contacts import lists_store
from engine.audience.contacts.files import FileFormat
from engine.base import clock, csv_files, ids
from engine.sending.unsubscribes import exports, files
from ops.contacts import OPERATOR, format_of, text_of
from ops.stored_messages import find_account


async def import_file(pool: asyncpg.Pool, *, account: str, path: Path, list_id: str) -> dict[str, Any]:
    """Record the opt-outs of a file; return the counts and the refused rows."""
    owner, topic = await find_account(pool, account), ids.parse_id(ids.Kind.LIST, list_id)
    given = topic_opt_outs.read_file(FileFormat(format_of(path)), text_of(path))
    result = await topic_opt_outs.opt_out(pool, owner, topic, given, actor=OPERATOR)
    refused = [{"index": one.index, "error": one.error} for one in result.refused]
    return {"added": result.added, "already": result.already, "refused": refused}


async def export(pool: asyncpg.Pool, out: IO[bytes], *, account: str, list_id: str, form: FileFormat) -> int:
    """Write all opt-outs of a list to `out`, newest first; return their number."""
    owner, topic = await find_account(pool, account), ids.parse_id(ids.Kind.LIST, list_id)
    await lists_store.read(pool, owner, topic)
    if form is FileFormat.CSV:
        out.write(files.csv_header())
    written = 0
    async for rows in exports.pages(pool, owner, topic):
        written += len(rows)
        if form is FileFormat.CSV:
            out.write(csv_files.csv_lines(map(files.csv_row, rows)))
            continue
        for row in rows:
            shown = {"address": row.address, "source": row.source, "createdAt": clock.iso(row.created_at)}
            out.write(msgspec.json.encode(shown) + b"\n")
    return written
