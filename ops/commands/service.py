"""Commands that run, upgrade and examine the service."""

import json

import click

from engine.base.settings import shown
from ops import operate
from ops.commands.base import as_json, attached, fail, loaded, reported, show, table


@click.command()
def up() -> None:
    """Start everything and keep it running; Ctrl-C drains and stops."""
    from ops.up import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(loaded()))


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(arguments: tuple[str, ...]) -> None:
    """Run the test suite; arguments go to pytest."""
    from ops.testing import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(list(arguments)))


@click.command()
@as_json
def config(*, as_json: bool) -> None:
    """Every setting, its value with secrets masked, and where it comes from."""
    rows = [{"name": name, "value": value, "from": origin} for name, value, origin in shown(loaded())]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        table(rows, ["name", "value", "from"])


@click.command()
@as_json
@reported
def migrate(*, as_json: bool) -> None:
    """Bring the database up to date."""
    import asyncio  # noqa: PLC0415

    from engine.store.migrate import MigrationError  # noqa: PLC0415
    from engine.store.migrate import migrate as run  # noqa: PLC0415

    settings = attached()
    assert settings.database_url is not None
    try:
        applied = asyncio.run(run(settings.database_url, say=lambda words: click.echo(words, err=True)))
    except MigrationError as error:
        fail(str(error))
    show({"applied": applied or ["nothing: the database is up to date"]}, as_json=as_json)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@as_json
@reported
def purge(*, dry_run: bool, as_json: bool) -> None:
    """Take away now what no plan keeps any more; the worker does it daily."""
    from ops import retention  # noqa: PLC0415

    show(operate.with_pool(attached(), lambda pool: retention.purge(pool, dry_run=dry_run)), as_json=as_json)


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """What is wrong with this installation, and how to mend it."""
    from ops.doctor import examine  # noqa: PLC0415

    findings = examine(loaded())
    if as_json:
        click.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = "ok  " if finding.ok else "BAD "
            click.echo(f"{mark} {finding.check}: {finding.found}")
            if finding.mend:
                click.echo(f"     mend: {finding.mend}")
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)
