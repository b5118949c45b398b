"""Commands that run, upgrade, configure and check the service."""

import time
from typing import Any

import click

from engine.base.settings import PREFIX, shown, unknown_setting
from engine.base.settings_docs import SettingDoc
from ops import admin
from ops.commands.base import as_json, attached, fail, loaded, print_json, reported, show, state_folder, table

COMPLETE_VARIABLE = "_WAYBILL_COMPLETE"


@click.command()
def up() -> None:
    """Start the service and keep it running until it is told to stop.

    To stop it: Ctrl-C, or from another terminal `kill $(cat .state/lock)` (the folder of WAYBILL_STATE). Open requests
    and deliveries are finished first; a second Ctrl-C or `kill` stops at once.
    """
    from ops.host.up import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(loaded()))


@click.command()
@click.argument("names", nargs=-1, help="Processes or kinds, as `ops status` names them; default: all.")
@as_json
@reported
def restart(names: tuple[str, ...], *, as_json: bool) -> None:
    """Replace processes one after the other, all or some (api, relay, mta-2, worker, …).

    Each new process is ready before the next one is replaced; no request is refused. New processes run the code now on
    disk, with the settings that `ops up` was started with.
    """
    from ops.host import rolling  # noqa: PLC0415

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
    from ops.host import rolling  # noqa: PLC0415

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
    import asyncio  # noqa: PLC0415

    from ops.host import cluster_check  # noqa: PLC0415

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
@click.argument("lock", default="run", help="Package set: run (the service), test, load (load tests) or dev.")
def bootstrap(lock: str) -> None:
    """Create or update the virtual environment (.venv) and print its folder. Every start does this too.

    WAYBILL_PYTHON selects the Python to use; PIP_INDEX_URL a mirror of the package index.
    """
    from ops.host.bootstrap import enter  # noqa: PLC0415

    raise click.exceptions.Exit(enter(["bootstrap", lock]) or 0)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--quick", is_flag=True, help="Run a few flows, and the pure rules without generated or very large inputs."
)
@click.option("--browser", is_flag=True, help="Run the tests of the console instead.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Run all tests: also the console's, every operation, many generated and very large inputs. About 12 minutes.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, help="Arguments for pytest.")
def test(*, quick: bool, browser: bool, everything: bool, arguments: tuple[str, ...]) -> None:
    """Run the test suite; ARGUMENTS go to pytest, such as `tests/mail -k dkim`.

    The last line but one lists skipped tests and why: tests of programs that are not installed, and tests marked
    `hosts`, which create network namespaces as root (`ops test -m hosts`). The tests of the console (`--browser` or
    `--all`) need Chromium: WAYBILL_CHROMIUM, or one of Debian's packages `chromium-headless-shell` and `chromium`.
    """
    from ops.testing import run  # noqa: PLC0415

    raise click.exceptions.Exit(run(list(arguments), quick=quick, browser=browser, everything=everything))


@click.command()
@click.argument("name", required=False, help="Setting to show in full, such as WAYBILL_API_PORT or api_port.")
@click.option("--page", is_flag=True, help="Print the reference page of all settings (ops/runbooks/settings.md).")
@as_json
@reported
def config(*, name: str | None, page: bool, as_json: bool) -> None:
    """List all settings by group: value (secrets masked), origin of the value, and meaning.

    Settings are environment variables; ops/runbooks/settings.md describes all of them.
    """
    from engine.base.settings_docs import documented  # noqa: PLC0415
    from engine.base.settings_groups import GROUPS  # noqa: PLC0415

    if page:
        from ops import settings_page  # noqa: PLC0415

        click.echo(settings_page.page(), nl=False)
        return
    docs = {one.variable: one for one in sorted(documented().values(), key=lambda one: GROUPS.index(one.group))}
    order = list(docs)
    rows = [{"name": field, "value": value, "from": origin} for field, value, origin in shown(loaded())]
    rows.sort(key=lambda row: order.index(row["name"]))
    if name is not None:
        wanted = name.upper() if name.upper().startswith(PREFIX) else PREFIX + name.upper()
        rows = [row for row in rows if row["name"] == wanted]
        if not rows:
            fail(unknown_setting(wanted))
    full_rows = [row | _documentation(docs[row["name"]]) for row in rows]
    if as_json:
        print_json(full_rows if name is None else full_rows[0])
    elif name is not None:
        show(full_rows[0], as_json=False)
    else:
        table(full_rows, ["group", "name", "value", "from", "meaning"])


def _documentation(one: SettingDoc) -> dict[str, Any]:
    return {
        "group": one.group,
        "type": one.kind,
        "default": one.default,
        "meaning": one.meaning,
        "readBy": list(one.readers),
    }


@click.command()
@as_json
@reported
def migrate(*, as_json: bool) -> None:
    """Apply pending migrations to the database."""
    import asyncio  # noqa: PLC0415

    from engine.store.migrate import MigrationError  # noqa: PLC0415
    from engine.store.migrate import migrate as run  # noqa: PLC0415

    settings = attached()
    assert settings.database_url is not None
    try:
        applied = asyncio.run(run(settings.database_url, report=lambda words: click.echo(words, err=True)))
    except MigrationError as error:
        fail(str(error))
    show({"applied": applied or ["nothing: the database is up to date"]}, as_json=as_json)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@as_json
@reported
def purge(*, dry_run: bool, as_json: bool) -> None:
    """Delete records past their retention; the worker does this every hour."""
    from ops import retention  # noqa: PLC0415

    show(admin.with_pool(attached(), lambda pool: retention.purge(pool, dry_run=dry_run)), as_json=as_json)


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Check this installation: what is wrong and how to fix it. Exit status 1 if anything is wrong."""
    from ops.doctor import examine  # noqa: PLC0415

    findings = examine(loaded())
    if as_json:
        print_json([finding.as_dict() for finding in findings])
    else:
        for finding in findings:
            mark = "ok  " if finding.ok else "BAD "
            click.echo(f"{mark} {finding.check}: {finding.found}")
            if finding.mend:
                click.echo(f"     fix: {finding.mend}")
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="Your shell.")
@click.option("--name", default="waybill", show_default=True, help="Name of the command on your PATH.")
def completion(*, shell: str, name: str) -> None:
    """Print a completion script for your shell.

    It completes commands and options of `waybill` (.venv/bin/waybill), or of a link to it with another name:

    \b
        ln -s "$PWD/.venv/bin/waybill" ~/.local/bin/waybill
        eval "$(waybill completion bash)"        # in ~/.bashrc; zsh: ~/.zshrc
        waybill completion fish | source         # in config.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, name, COMPLETE_VARIABLE).source())
