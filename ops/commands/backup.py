"""`ops backup` and `ops restore`."""

from datetime import timedelta
from pathlib import Path

import click

from ops.backup import run
from ops.commands.base import as_json, fail, loaded, reported, show


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), help="New folder for the backup.")
@click.option(
    "--without-pepper",
    is_flag=True,
    help="Leave out the pepper; without it, no key in the backup works.",
)
@as_json
@reported
def backup(*, folder: Path, without_pepper: bool, as_json: bool) -> None:
    """Write all durable data into a new folder, while mail flows."""
    done = run.backup(loaded(), folder, keep_pepper=not without_pepper)
    show(done, as_json=as_json)
    if not as_json:
        click.echo(
            f"\n{folder} contains mail and addresses"
            + (", but not the pepper. Keep the pepper as safe as this folder." if without_pepper else
               ", and the pepper, which opens every key in it. Restrict access to it."),
            err=True,
        )  # fmt: skip


@click.command()
@click.argument(
    "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder written by `ops backup`."
)
@click.option(
    "--hold/--no-hold",
    default=True,
    show_default=True,
    help="Hold all mail until `ops queue resume --all`: mail pending at the backup may have been delivered since.",
)
@click.option("--dry-run", is_flag=True, help="Only check the files, the pepper, and that the database is empty.")
@as_json
@reported
def restore(*, folder: Path, hold: bool, dry_run: bool, as_json: bool) -> None:
    """Restore a backup into an empty database, read it back, and verify every account log."""
    done = run.restore(loaded(), folder, hold=hold, dry_run=dry_run)
    show(done, as_json=as_json)
    if done["restored"] and not as_json:
        click.echo(
            "\nKeys, sessions and members are as at the backup: revoke again those that were revoked since."
            + ("\nAll mail is held. Check `ops queue`, then run `ops queue resume --all`." if hold else ""),
            err=True,
        )
    if done.get("clockAheadS") and not as_json:
        click.echo(
            f"The clock had been moved {timedelta(seconds=round(done['clockAheadS']))} ahead. That was not restored, so"
            " some records have dates in the future. In local mode, `ops clock to TIME` moves the clock again.",
            err=True,
        )
    if done.get("broken"):
        fail(f"The hash chain of {len(done['broken'])} account logs is broken. They were restored as backed up.")
