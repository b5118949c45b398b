"""`ops reports`: the report mails that the MX stored, and what became of each."""

from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import click
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.receiving.reports import store
from engine.receiving.reports.types import ReportPurpose, ReportRow, ReportState
from ops.commands.base import as_json, in_database, limit_option, line, print_json, reported, show_rows

_COLUMNS = ["receivedAt", "id", "purpose", "state", "result", "reason", "message"]


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice([one.value for one in ReportState]), help="Only reports in this state.")
@click.option("--purpose", type=click.Choice([one.value for one in ReportPurpose]), help="Only reports of this kind.")
@limit_option(20, most=1000)
@as_json
@click.pass_context
@reported
def reports(context: click.Context, *, state: str | None, purpose: str | None, limit: int, as_json: bool) -> None:
    """List received reports of the last 7 days, newest first, and why some had no effect."""
    if context.invoked_subcommand is not None:
        return
    show_rows(
        in_database(listed, state=state, purpose=purpose, limit=limit), _COLUMNS, as_json=as_json, empty="No reports."
    )


@reports.command("counts")
@as_json
@reported
def reports_counts(*, as_json: bool) -> None:
    """Count the reports of the last 7 days by kind, state and result."""
    found = in_database(counts)
    show_rows(found, list(found[0]) if found else [], as_json=as_json, empty="No reports.")


@reports.command("show")
@click.argument("report", metavar="ID", type=click.UUID, help="Id of the report, as `ops reports` lists it.")
@click.option("--raw", "to", type=click.Path(path_type=Path, dir_okay=False), help=("Write the email to this file."))
@as_json
@reported
def show_report(*, report: UUID, to: Path | None, as_json: bool) -> None:
    """Show one report: where it came from, what it did or why it did nothing, and the mail itself."""
    found, mail = in_database(opened, report)
    if to is not None and mail is not None:
        to.write_bytes(mail)
        found["file"] = str(to)
    text = None if mail is None else mail.decode("utf-8", "replace")
    if as_json:
        print_json(found if to else found | {"mail": text})
        return
    for name, value in found.items():
        line(name, value)
    if text is None:
        click.echo("\nThe mail is not kept: it was applied, or it was too large.")
    elif to is None:
        click.echo(f"\n{text}")


async def counts(pool: asyncpg.Pool) -> list[dict[str, Any]]:
    """Count the stored reports by purpose, state and result."""
    return [structs.asdict(one) | {"oldest": clock.iso(one.oldest)} for one in await store.counts(pool)]


async def listed(pool: asyncpg.Pool, *, state: str | None, purpose: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest reports."""
    rows = await store.page(pool, before=None, state=state, purpose=purpose, limit=limit)
    return [_shown(row) for row in rows]


async def opened(pool: asyncpg.Pool, report: UUID) -> tuple[dict[str, Any], bytes | None]:
    """Return one report and the bytes of its mail, None if they are not kept."""
    row = await store.read_row(pool, report)
    found = await store.read(pool, report)
    if row is None or found is None:
        raise not_found("report")
    return _shown(row), found.raw


def _shown(row: ReportRow) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "receivedAt": clock.iso(row.received_at),
        "to": f"{row.local}@{row.host}",
        "from": row.envelope_from or "<>",
        "ip": row.remote_ip,
        "reporter": row.reporter_address,
        "signedBy": row.signed_by,
        "size": row.size_bytes,
        "purpose": row.purpose,
        "state": row.state,
        "result": row.result,
        "reason": row.reason,
        "account": None if row.account_id is None else ids.format_id(ids.Kind.ACCOUNT, row.account_id),
        "message": None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        "tries": row.tries,
    }
