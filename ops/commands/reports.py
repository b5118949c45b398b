"""Commands that show received reports: bounces, complaints, DMARC and TLS reports."""

from pathlib import Path
from uuid import UUID

import click

from engine.receiving.reports.types import ReportPurpose, ReportState
from ops import admin
from ops.commands.base import as_json, attached, line, print_json, reported, table

_COLUMNS = ["receivedAt", "id", "purpose", "state", "result", "reason", "message"]


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice([one.value for one in ReportState]), help="Only reports in this state.")
@click.option("--purpose", type=click.Choice([one.value for one in ReportPurpose]), help="Only reports of this kind.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Print at most this many.")
@as_json
@click.pass_context
@reported
def reports(context: click.Context, *, state: str | None, purpose: str | None, limit: int, as_json: bool) -> None:
    """List received reports of the last 7 days, newest first, and why some had no effect."""
    if context.invoked_subcommand is not None:
        return
    from ops import reports as ops_reports  # noqa: PLC0415

    settings = attached()
    found = admin.with_pool(settings, lambda pool: ops_reports.listed(pool, state=state, purpose=purpose, limit=limit))
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No reports.")
    else:
        table(found, _COLUMNS)


@reports.command("counts")
@as_json
@reported
def counts(*, as_json: bool) -> None:
    """Count the reports of the last 7 days by kind, state and result."""
    from ops import reports as ops_reports  # noqa: PLC0415

    found = admin.with_pool(attached(), ops_reports.counts)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No reports.")
    else:
        table(found, list(found[0]))


@reports.command("show")
@click.argument("report", metavar="ID", type=click.UUID, help="Id of the report, as `ops reports` lists it.")
@click.option("--raw", "to", type=click.Path(path_type=Path, dir_okay=False), help="Write the mail to this file.")
@as_json
@reported
def show_report(*, report: UUID, to: Path | None, as_json: bool) -> None:
    """Show one report: where it came from, what it did or why it did nothing, and the mail itself."""
    from ops import reports as ops_reports  # noqa: PLC0415

    found, mail = admin.with_pool(attached(), lambda pool: ops_reports.opened(pool, report))
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
