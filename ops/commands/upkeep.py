"""Commands that keep an installation: backup and restore."""

from pathlib import Path

import click

from ops.commands.base import as_json, fail, loaded, reported, show


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), help="New folder for the backup.")
@click.option(
    "--without-pepper", is_flag=True, help="Keep the pepper elsewhere: without it no key of the backup is good."
)
@as_json
@reported
def backup(*, folder: Path, without_pepper: bool, as_json: bool) -> None:
    """Write everything durable into a new folder, while sending goes on."""
    from ops.backup.run import backup as run  # noqa: PLC0415

    done = run(loaded(), folder, keep_pepper=not without_pepper)
    show(done, as_json=as_json)
    if not as_json:
        click.echo(
            f"\n{folder} holds mail, addresses"
            + (" and no pepper: keep that one as safe as this." if without_pepper else
               " and the pepper: whoever has it can open every key in it. Keep it closed."),
            err=True,
        )  # fmt: skip


@click.command()
@click.argument(
    "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder that `ops backup` wrote."
)
@click.option(
    "--hold/--no-hold",
    default=True,
    show_default=True,
    help="Hold all mail until `ops queue resume --all`: what was under way may have arrived already.",
)
@click.option("--dry-run", is_flag=True, help="Only check the files, the pepper and that the database is empty.")
@as_json
@reported
def restore(*, folder: Path, hold: bool, dry_run: bool, as_json: bool) -> None:
    """Put a backup into an empty database, read it back, and replay every account's log."""
    from ops.backup.run import restore as run  # noqa: PLC0415

    done = run(loaded(), folder, hold=hold, dry_run=dry_run)
    show(done, as_json=as_json)
    if done["restored"] and not as_json:
        click.echo(
            "\nKeys, sessions and members are as they were then: revoke again what has been revoked since."
            + ("\nAll mail is held. Look at `ops queue`, then `ops queue resume --all`." if hold else ""),
            err=True,
        )
    if done.get("broken"):
        fail(f"{len(done['broken'])} logs do not follow from themselves; the backup holds them as they were")
