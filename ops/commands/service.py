"""`ops restart`, `status`, `adopt` and `migrate`: run and upgrade the service on this host."""

import asyncio
import time

import click

from engine.store.migrate import MigrationError
from engine.store.migrate import migrate as bring_up_to_date
from ops.commands.base import as_json, attached, fail, print_json, reported, show, state_folder, table
from ops.host import cluster_check, rolling


@click.command()
@click.argument("names", nargs=-1, help="Processes or kinds, as `ops status` names them; default: all.")
@as_json
@reported
def restart(names: tuple[str, ...], *, as_json: bool) -> None:
    """Replace processes one after the other, all or some (api, relay, mta-2, worker, …).

    Each new process is ready before the next one is replaced; no request is refused. New processes run the code now on
    disk, with the settings that `ops up` was started with.
    """
    done = []
    for name in rolling.ask_restart(state_folder(), names):
        done.append(name)
        if not as_json:
            click.echo(f"Replaced {name}")
    if as_json:
        print_json({"restarted": done})


@click.command()
@as_json
@reported
def status(*, as_json: bool) -> None:
    """Show the processes of the service on this host: age, restarts, readiness, memory.

    Commands accept the name or the kind of a process; across hosts, HOST:NAME. Each process writes its log to NAME.log
    in the folder `log` of the state folder.
    """
    rows = rolling.ask_status(state_folder())
    if as_json:
        print_json(rows)
        return
    now = time.time()
    table_rows = [
        {
            "process": row["name"],
            "kind": row.get("kind") or row["name"].partition("-")[0],  # a supervisor of 0.1.0 does not say it,
            "pid": row["pid"],
            "ready": row["ready"],
            "for": _duration(now - row["since"]) if row["since"] else None,
            "deaths": row["deaths"],
            "replaced": row["renewals"],
            "memory": f"{row['memory_bytes'] / 2**20:.0f} MiB" if row["memory_bytes"] else None,
        }
        for row in rows
    ]
    table(table_rows, list(table_rows[0]) if table_rows else [])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


@click.command()
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@as_json
@reported
def adopt(*, yes: bool, as_json: bool) -> None:
    """Store this host's WAYBILL_KEY_PEPPER and number of shards as those of the installation.

    Use it when the old pepper is lost. Keys, sessions and tokens made with the old pepper become invalid.
    """
    if not yes:
        click.confirm(
            "Keys, sessions and tokens made with another pepper become invalid. Continue?", abort=True, err=True
        )
    asyncio.run(cluster_check.adopt(attached()))
    if as_json:
        print_json({"adopted": True})
    else:
        click.echo("Adopted. Start this host, and set the same pepper and number of shards on the other hosts.")


@click.command()
@as_json
@reported
def migrate(*, as_json: bool) -> None:
    """Apply pending migrations to the database."""
    settings = attached()
    assert settings.database_url is not None
    try:
        applied = asyncio.run(bring_up_to_date(settings.database_url, report=lambda words: click.echo(words, err=True)))
    except MigrationError as error:
        fail(str(error))
    show({"applied": applied or ["nothing: the database is up to date"]}, as_json=as_json)
