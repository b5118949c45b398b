"""Commands about contacts, suppressions and opt-outs: list, import and export them as files."""

import sys
from pathlib import Path
from typing import Any

import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table

_FORMATS = ("csv", "ndjson")
_account = click.option("--account", required=True, help="The account (id acc_… or name).")
_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File to import.")
_format = click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="csv", show_default=True, help="Format of the output."
)


@click.group()
def contacts() -> None:
    """Show, import and export contacts."""


@contacts.command("list")
@_account
@click.option("--search", help="Only contacts with this in address or name.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="Print at most this many.")
@as_json
@reported
def list_contacts(*, account: str, search: str | None, limit: int, as_json: bool) -> None:
    """List the newest contacts of an account."""
    from engine.audience.contacts.search import checked_search  # noqa: PLC0415
    from ops import contacts as stored  # noqa: PLC0415

    wanted = None if search is None else checked_search(search)
    found = admin.with_pool(attached(), lambda pool: stored.newest(pool, account=account, search=wanted, limit=limit))
    if as_json:
        print_json(found)
    elif not found:
        click.echo("None.")
    else:
        table(found, ["email", "name", "consent", "confirmed", "suppressionReason", "createdAt", "id"])


@contacts.command("import")
@_file
@_account
@click.option(
    "--consent",
    type=click.Choice(["signed_up", "customer", "imported_with_consent"]),
    required=True,
    help="Why these people may be sent broadcasts.",
)
@click.option("--list", "list_id", help="Add the contacts to this list (lst_…).")
@as_json
@reported
def import_contacts(*, file: Path, account: str, consent: str, list_id: str | None, as_json: bool) -> None:
    """Import a .csv, .ndjson or .jsonl file of up to 10,000 contacts; after a failure, import it again."""
    from engine.audience.contacts.types import Consent  # noqa: PLC0415
    from ops import contacts as stored  # noqa: PLC0415

    result = admin.with_pool(
        attached(),
        lambda pool: stored.import_contacts(
            pool, account=account, path=file, consent=Consent(consent), list_id=list_id
        ),
    )
    _print_result(result, "invalid", as_json=as_json)


@contacts.command("export")
@_account
@_format
@reported
def export_contacts(*, account: str, form: str) -> None:
    """Write all contacts of an account to standard output."""
    from engine.audience.contacts.files import FileFormat  # noqa: PLC0415
    from ops import contacts as stored  # noqa: PLC0415

    out = sys.stdout.buffer
    written = admin.with_pool(
        attached(), lambda pool: stored.export_contacts(pool, out, account=account, form=FileFormat(form))
    )
    click.echo(f"{written} contacts", err=True)


@click.group()
def suppressions() -> None:
    """Import and export suppressed addresses, such as opt-outs."""


@suppressions.command("import")
@_file
@_account
@click.option(
    "--reason",
    type=click.Choice(["unsubscribe", "manual"]),
    default="unsubscribe",
    show_default=True,
    help="The reason of rows that give none.",
)
@as_json
@reported
def import_suppressions(*, file: Path, account: str, reason: str, as_json: bool) -> None:
    """Suppress the addresses of a .csv, .ndjson or .jsonl file with a column `address` or `email`."""
    from engine.sending.suppressions.types import Reason  # noqa: PLC0415
    from ops import contacts as stored  # noqa: PLC0415

    result = admin.with_pool(
        attached(),
        lambda pool: stored.import_suppressions(pool, account=account, path=file, reason=Reason(reason)),
    )
    _print_result(result, "refused", as_json=as_json)


@suppressions.command("export")
@_account
@_format
@click.option("--reason", type=click.Choice(["unsubscribe", "manual", "bounce", "complaint"]), help="Only this reason.")
@reported
def export_suppressions(*, account: str, form: str, reason: str | None) -> None:
    """Write the suppressed addresses of an account to standard output."""
    from engine.sending.suppressions.files import SuppressionFileFormat  # noqa: PLC0415
    from engine.sending.suppressions.types import Reason  # noqa: PLC0415
    from ops import contacts as stored  # noqa: PLC0415

    out = sys.stdout.buffer
    wanted = None if reason is None else Reason(reason)
    written = admin.with_pool(
        attached(),
        lambda pool: stored.export_suppressions(
            pool, out, account=account, form=SuppressionFileFormat(form), reason=wanted
        ),
    )
    click.echo(f"{written} suppressed addresses", err=True)


@click.group("opt-outs")
def opt_outs() -> None:
    """Import and export opt-outs of a contact list: people whom its broadcasts leave out."""


_list = click.option("--list", "list_id", required=True, help="The list (lst_…).")


@opt_outs.command("import")
@_file
@_account
@_list
@as_json
@reported
def import_opt_outs(*, file: Path, account: str, list_id: str, as_json: bool) -> None:
    """Record opt-outs from a .csv, .ndjson or .jsonl file with a column `address` or `email`."""
    from ops import opt_outs as stored  # noqa: PLC0415

    result = admin.with_pool(
        attached(), lambda pool: stored.import_file(pool, account=account, path=file, list_id=list_id)
    )
    _print_result(result, "refused", as_json=as_json)


@opt_outs.command("export")
@_account
@_list
@_format
@reported
def export_opt_outs(*, account: str, list_id: str, form: str) -> None:
    """Write all opt-outs of a list to standard output."""
    from engine.audience.contacts.files import FileFormat  # noqa: PLC0415
    from ops import opt_outs as stored  # noqa: PLC0415

    out = sys.stdout.buffer
    written = admin.with_pool(
        attached(), lambda pool: stored.export(pool, out, account=account, list_id=list_id, form=FileFormat(form))
    )
    click.echo(f"{written} opt-outs", err=True)


def _print_result(result: dict[str, Any], refused: str, *, as_json: bool) -> None:
    """Print the counts of an import, and a line for each row that was refused."""
    if as_json:
        print_json(result)
        return
    click.echo(", ".join(f"{name} {count}" for name, count in result.items() if name != refused))
    for row in result[refused]:
        click.echo(f"row {row['index']}: {row['error']['message']}")
