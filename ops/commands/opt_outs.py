"""`ops opt-outs`: opt-outs of the contact lists of any account as files."""

import sys
from pathlib import Path
from typing import IO, Any

import asyncpg
import click
import msgspec

from engine.audience import topic_opt_outs
from engine.audience.contacts import lists_store
from engine.audience.contacts.files import FileFormat
from engine.base import clock, csv_files, ids
from engine.sending.unsubscribes import exports, files
from ops.commands.base import as_json, in_database, reported
from ops.commands.contacts import (
    OPERATOR,
    format_of,
    imported_file,
    named_account,
    output_format,
    print_result,
    text_of,
)
from ops.commands.find_account import find_account

_list = click.option("--list", "list_id", required=True, help="The list (lst_…).")


@click.group("opt-outs")
def opt_outs() -> None:
    """Import and export opt-outs of a contact list: people whom its broadcasts leave out."""


@opt_outs.command("import")
@imported_file
@named_account
@_list
@as_json
@reported
def import_opt_outs(*, file: Path, account: str, list_id: str, as_json: bool) -> None:
    """Record opt-outs from a .csv, .ndjson or .jsonl file with a column `address` or `email`."""
    result = in_database(import_file, account=account, path=file, list_id=list_id)
    print_result(result, "refused", as_json=as_json)


@opt_outs.command("export")
@named_account
@_list
@output_format
@reported
def export_opt_outs(*, account: str, list_id: str, form: str) -> None:
    """Write all opt-outs of a list to standard output."""
    out = sys.stdout.buffer
    written = in_database(export, out, account=account, list_id=list_id, form=FileFormat(form))
    click.echo(f"{written} opt-outs", err=True)


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
