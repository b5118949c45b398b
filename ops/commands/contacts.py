"""`ops contacts` and `ops suppressions`: list, import and export them as files."""

import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any

import asyncpg
import click
import msgspec

from api.areas.contacts.resources import contact_of
from engine.audience.contacts import exports, files, imports, store
from engine.audience.contacts.files import FileFormat
from engine.audience.contacts.search import checked_search
from engine.audience.contacts.types import Consent, ContactFilters
from engine.base import csv_files, ids
from engine.base.errors import Refusal
from engine.base.list_cursors import ListPlace
from engine.sending.suppressions import files as suppression_files
from engine.sending.suppressions import rules as suppression_rules
from engine.sending.suppressions import service as suppression_service
from engine.sending.suppressions import store as suppression_store
from engine.sending.suppressions.files import SuppressionFileFormat
from engine.sending.suppressions.types import Reason, SuppressionRow
from ops.commands.base import as_json, in_database, limit_option, print_json, record, reported, show_rows
from ops.commands.find_account import find_account

OPERATOR = "operator"
ROWS = 1_000  # in one transaction or query
named_account = click.option("--account", required=True, help="The account (id acc_… or name).")
imported_file = click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File to import."
)
output_format = click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "ndjson"]),
    default="csv",
    show_default=True,
    help="Format of the output.",
)


@click.group()
def contacts() -> None:
    """Show, import and export contacts."""


@contacts.command("list")
@named_account
@click.option("--search", help="Only contacts whose address or name contains this text.")
@limit_option(50, most=1_000)
@as_json
@reported
def contacts_list(*, account: str, search: str | None, limit: int, as_json: bool) -> None:
    """List the newest contacts of an account."""
    wanted = None if search is None else checked_search(search)
    show_rows(
        in_database(newest, account=account, search=wanted, limit=limit),
        ["email", "name", "consent", "confirmed", "suppressionReason", "createdAt", "id"],
        as_json=as_json,
    )


@contacts.command("import")
@imported_file
@named_account
@click.option(
    "--consent",
    type=click.Choice(["signed_up", "customer", "imported_with_consent"]),
    required=True,
    help="Why you may send broadcasts to these people.",
)
@click.option("--list", "list_id", help="Add the contacts to this list (lst_…).")
@as_json
@reported
def contacts_import(*, file: Path, account: str, consent: str, list_id: str | None, as_json: bool) -> None:
    """Import a .csv, .ndjson or .jsonl file of up to 10,000 contacts; after a failure, import it again."""
    result = in_database(import_contacts, account=account, path=file, consent=Consent(consent), list_id=list_id)
    print_result(result, "invalid", as_json=as_json)


@contacts.command("export")
@named_account
@output_format
@reported
def contacts_export(*, account: str, form: str) -> None:
    """Write all contacts of an account to standard output."""
    out = sys.stdout.buffer
    written = in_database(export_contacts, out, account=account, form=FileFormat(form))
    click.echo(f"{written} contacts", err=True)


@click.group()
def suppressions() -> None:
    """Import and export suppressed addresses, such as opt-outs."""


@suppressions.command("import")
@imported_file
@named_account
@click.option(
    "--reason",
    type=click.Choice(["unsubscribe", "manual"]),
    default="unsubscribe",
    show_default=True,
    help="Reason for rows without one.",
)
@as_json
@reported
def suppressions_import(*, file: Path, account: str, reason: str, as_json: bool) -> None:
    """Suppress the addresses of a .csv, .ndjson or .jsonl file with a column `address` or `email`."""
    result = in_database(import_suppressions, account=account, path=file, reason=Reason(reason))
    print_result(result, "refused", as_json=as_json)


@suppressions.command("export")
@named_account
@output_format
@click.option("--reason", type=click.Choice(["unsubscribe", "manual", "bounce", "complaint"]), help="Only this reason.")
@reported
def suppressions_export(*, account: str, form: str, reason: str | None) -> None:
    """Write the suppressed addresses of an account to standard output."""
    out = sys.stdout.buffer
    wanted = None if reason is None else Reason(reason)
    written = in_database(export_suppressions, out, account=account, form=SuppressionFileFormat(form), reason=wanted)
    click.echo(f"{written} suppressed addresses", err=True)


def print_result(result: dict[str, Any], refused: str, *, as_json: bool) -> None:
    """Print the counts of an import, and a line for each row that was refused."""
    if as_json:
        print_json(result)
        return
    click.echo(", ".join(f"{name} {count}" for name, count in result.items() if name != refused))
    for row in result[refused]:
        click.echo(f"row {row['index']}: {row['error']['message']}")


async def newest(pool: asyncpg.Pool, *, account: str, search: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest contacts of an account, or those that match a search."""
    owner = await find_account(pool, account)
    page = await store.page(pool, owner, ContactFilters(search=search), limit=limit)
    return [dict(msgspec.to_builtins(contact_of(row))) for row in page.rows]


async def import_contacts(
    pool: asyncpg.Pool, *, account: str, path: Path, consent: Consent, list_id: str | None
) -> dict[str, Any]:
    """Import a file of at most files.MAX_FILE_ROWS contacts; return the counts and the invalid rows."""
    owner = await find_account(pool, account)
    rows = files.read_file(FileFormat(format_of(path)), text_of(path))
    chosen = None if list_id is None else ids.parse_id(ids.Kind.LIST, list_id)
    result = await imports.import_many(pool, owner, rows, consent=consent, list_id=chosen, actor=OPERATOR)
    return {
        "created": result.created,
        "updated": result.updated,
        "unchanged": result.unchanged,
        "suppressed": result.suppressed,
        "overLimit": result.over_limit,
        "invalid": [{"index": row.index, "error": row.error} for row in result.invalid],
    }


async def export_contacts(pool: asyncpg.Pool, out: IO[bytes], *, account: str, form: FileFormat) -> int:
    """Write all contacts of an account to `out`; return their number."""
    owner = await find_account(pool, account)
    columns = await exports.field_columns(pool, owner) if form is FileFormat.CSV else []
    if form is FileFormat.CSV:
        out.write(files.csv_header(columns))
    written = 0
    async for rows in exports.pages(pool, owner, ContactFilters()):
        written += len(rows)
        if form is FileFormat.CSV:
            out.write(csv_files.csv_lines(files.csv_row(row, columns) for row in rows))
        else:
            out.writelines(msgspec.json.encode(contact_of(row)) + b"\n" for row in rows)
    return written


async def import_suppressions(pool: asyncpg.Pool, *, account: str, path: Path, reason: Reason) -> dict[str, Any]:
    """Suppress the addresses of a file; return the counts and the invalid rows."""
    owner = await find_account(pool, account)
    rows = suppression_files.read_file(SuppressionFileFormat(format_of(path)), text_of(path))
    wanted: list[tuple[str, Reason]] = []
    refused = []
    for index, row in enumerate(rows):
        request = suppression_files.request_of(row, reason.value)
        try:
            wanted.append((suppression_rules.address_of(str(request["address"])), Reason(request["reason"])))
        except Refusal as refusal:
            refused.append({"index": index, "error": refusal.envelope()["error"]})
    counted: Counter[str] = Counter()
    for start in range(0, len(wanted), ROWS):
        part = wanted[start : start + ROWS]
        counted.update(
            one.change.value for one in await suppression_service.suppress(pool, owner, part, actor=OPERATOR)
        )
    return {name: counted[name] for name in ("added", "changed", "unchanged")} | {"refused": refused}


async def export_suppressions(
    pool: asyncpg.Pool, out: IO[bytes], *, account: str, form: SuppressionFileFormat, reason: Reason | None
) -> int:
    """Write the suppressions of an account to `out`, all or those of one reason; return their number."""
    owner = await find_account(pool, account)
    wanted = suppression_rules.filters(before=None, reason=reason, search=None)
    if form is SuppressionFileFormat.CSV:
        out.write(suppression_files.csv_header())
    written = 0
    while True:
        page = await suppression_store.page(pool, owner, wanted, limit=ROWS)
        written += len(page.rows)
        if form is SuppressionFileFormat.CSV:
            out.write(csv_files.csv_lines(map(suppression_files.csv_row, page.rows)))
        else:
            out.writelines(msgspec.json.encode(_suppression(row)) + b"\n" for row in page.rows)
        if not page.has_more:
            return written
        last = page.rows[-1]
        wanted = msgspec.structs.replace(wanted, before=ListPlace(last.created_at, last.address))


def format_of(path: Path) -> str:
    """Return the format by the name of a file; raise ValueError for another name."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in {"csv", "ndjson", "jsonl"}:
        raise ValueError(f"{path.name} is neither CSV nor newline-delimited JSON. Name it .csv, .ndjson or .jsonl.")
    return "csv" if suffix == "csv" else "ndjson"


def text_of(path: Path) -> str:
    """Return the text of a file; raise ValueError for one that is not UTF-8."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8. Save it as UTF-8.") from None


def _suppression(row: SuppressionRow) -> dict[str, Any]:
    return {name: value for name, value in record(row).items() if name != "messageId"}
