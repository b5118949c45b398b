"""Commands that run, upgrade and examine the service."""

import json
import time

import click

from engine.base.settings import shown
from ops import operate
from ops.commands.base import as_json, attached, fail, loaded, reported, show, state_folder, table


@click.command()
def up() -> None:
    """Start everything and keep it running; Ctrl-C drains and stops."""
    from ops.up import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(loaded()))


@click.command()
@click.argument("names", nargs=-1)
@as_json
@reported
def restart(names: tuple[str, ...], *, as_json: bool) -> None:
    """Replace the service's processes one after the other, all or those NAMED (api, relay, mta-2, worker, …).

    Each is ready before the next one goes, and no request is refused meanwhile. What they run is the code that lies
    there now, with the settings that `ops up` was started with.
    """
    from ops import rolling  # noqa: PLC0415

    done = []
    for name in rolling.ask_restart(state_folder(), names):
        done.append(name)
        if not as_json:
            click.echo(f"{name} was replaced")
    if as_json:
        click.echo(json.dumps({"restarted": done}, indent=2))


@click.command()
@as_json
@reported
def status(*, as_json: bool) -> None:
    """The processes of the service that runs here: since when, how often started again, ready or not, memory."""
    from ops import rolling  # noqa: PLC0415

    rows = rolling.ask_status(state_folder())
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    now = time.time()
    shown_rows = [
        {
            "process": row["name"],
            "pid": row["pid"],
            "ready": "yes" if row["ready"] else "NO",
            "for": _duration(now - row["since"]) if row["since"] else None,
            "deaths": row["deaths"],
            "replaced": row["renewals"],
            "memory": f"{row['memory_bytes'] / 2**20:.0f} MiB" if row["memory_bytes"] else None,
        }
        for row in rows
    ]
    table(shown_rows, list(shown_rows[0]) if shown_rows else [])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


@click.command()
@click.option("--yes", is_flag=True, help="Don't ask.")
@reported
def adopt(*, yes: bool) -> None:
    """Take this host's pepper and number of shards for those of the whole installation.

    For when the pepper is lost: every key and session made under the old one is worth nothing afterwards.
    """
    import asyncio  # noqa: PLC0415

    from ops import agreement  # noqa: PLC0415

    if not yes:
        click.confirm("Keys, sessions and tokens made under another pepper will never work again. Go on?", abort=True)
    asyncio.run(agreement.adopt(attached()))
    click.echo("Adopted. Start this host, and give the same settings to the others.")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--quick", is_flag=True, help="Run the rules, without generated examples, and one way through each part.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(*, quick: bool, arguments: tuple[str, ...]) -> None:
    """Run the test suite; ARGUMENTS go to pytest, such as `tests/mail -k dkim`.

    The last line but one says what was left out and why: tests of programs that are not installed here, and the tests
    marked `hosts`, which make network namespaces as root (`ops test -m hosts`).
    """
    from ops.testing import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(list(arguments), quick=quick))


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
