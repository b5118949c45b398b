"""Run `ops backup` and `ops restore`: choose the database, the pepper and the folders, and show progress."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from engine.base.secrets import Pepper
from engine.base.settings import Loaded, Settings, variable
from ops.backup import manifest as contents
from ops.backup import restore as restoring
from ops.backup.dump import dump
from ops.backup.manifest import FIRST_RUN, PEPPER, PREVIOUS_PEPPER, BackupError, Manifest
from ops.backup.tables import connected
from ops.host.attach import attach
from ops.host.postgres_server import PostgresServer
from ops.host.state import StateLock, holder, kept_peppers, make_state, write_private
from ops.processes import gauges

LAST: Final = gauges.LAST_BACKUP
DatabaseUnavailable = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


def backup(loaded: Loaded, folder: Path, *, keep_pepper: bool) -> dict[str, Any]:
    """Write a backup to `folder` and return its summary; the service may be running or stopped. Raises BackupError."""
    folder = folder.expanduser().absolute()
    state = loaded.settings.state.expanduser().absolute()
    with database(loaded) as settings, _shown() as (say, _):
        assert settings.database_url is not None
        pepper = _pepper(settings, state)
        if pepper is None:
            raise BackupError(
                f"no pepper is known here: run this where {variable('key_pepper')} is set, or beside the state folder"
            )
        first_run = state / FIRST_RUN
        kept = first_run.read_text("utf-8") if keep_pepper and first_run.is_file() else None
        work = dump(settings.database_url, folder, pepper, keep_pepper=keep_pepper, first_run=kept, say=say)
        made = _run(work)
    if state.is_dir():
        write_private(state / LAST, json.dumps({"madeAt": made.made_at, "folder": str(folder)}) + "\n")
    return _told(made, folder) | {"pepper": str(folder / PEPPER) if keep_pepper else "left out"}


def restore(loaded: Loaded, folder: Path, *, hold: bool, dry_run: bool) -> dict[str, Any]:
    """Restore a backup into an empty database and return a summary; `dry_run` only runs the checks.

    Raises BackupError.
    """
    folder = folder.expanduser().absolute()
    made = contents.read(folder)
    restoring.known_migrations(made)
    with _shown() as (_, stage):
        stage("Checking the files")
        contents.check_files(folder, made)
    embedded = loaded.settings.database_url is None
    state = loaded.settings.state.expanduser().absolute()
    if embedded and holder(state) is not None:
        raise BackupError(f"Waybill runs on {state}: stop it first, or name another WAYBILL_STATE")
    pepper = _fitting_pepper(loaded.settings, state, folder, made)
    if dry_run:
        if not embedded:
            _run(_could(loaded.settings.database_url or "", made))
        return _told(made, folder) | {"restored": False}
    with database(loaded) as settings, _shown() as (say, stage):
        assert settings.database_url is not None

        def keep() -> None:
            _keep_pepper(loaded.settings, make_state(state), folder, pepper)

        work = restoring.restore(settings.database_url, folder, made, hold=hold, say=say, stage=stage, committed=keep)
        done = _run(work)
    return _told(made, folder) | {
        "restored": True, "chains": done.chains, "broken": done.broken, "held": done.held, "migrated": done.migrated,
    }  # fmt: skip


@contextmanager
def database(loaded: Loaded) -> Iterator[Settings]:
    """Yield the settings with a reachable database: the configured one, or the embedded one.

    An embedded PostgreSQL that is not running is started, and stopped when the context ends.
    """
    settings = loaded.settings
    state = settings.state.expanduser().absolute()
    if settings.database_url is not None:
        yield settings
    elif holder(state) is not None:
        yield attach(loaded)
    else:
        with StateLock(make_state(state)):
            server = PostgresServer(state)
            server.start()
            try:
                yield msgspec.structs.replace(settings, database_url=server.url)
            finally:
                server.stop()


def _run(work: Any) -> Any:
    try:
        return asyncio.run(work)
    except BackupError:
        raise
    except DatabaseUnavailable as error:
        raise BackupError(f"broken off: {str(error) or type(error).__name__}") from error


async def _could(database_url: str, made: Manifest) -> None:
    async with connected(database_url, restoring.OWN_NAME) as connection:
        await restoring.refuse_company(connection)
        await restoring.refuse_full(connection, restoring.known_migrations(made))


def _pepper(settings: Settings, state: Path) -> Pepper | None:
    if settings.key_pepper is None:
        if not (state / PEPPER).is_file():
            return None
        settings = msgspec.structs.replace(settings, **kept_peppers(state))
    return settings.pepper


def _fitting_pepper(settings: Settings, state: Path, folder: Path, made: Manifest) -> Pepper:
    """Return the pepper of the backup's API keys; raises BackupError if it is unknown or a different one is set.

    The pepper here may be newer than the backup, as long as the backup's one is set as its previous one.
    """
    own = _pepper(settings, state)
    known = _kept(folder) if own is None else own
    if known is None:
        raise BackupError(
            f"this backup was made without its pepper: set {variable('key_pepper')} to that of its service"
        )
    prints = [contents.fingerprint(one) for one in known.accepted]
    if made.pepper not in prints:
        if own is None:
            raise BackupError(f"{folder / PEPPER} is not the pepper that the backup's keys were made under")
        raise BackupError(
            "the pepper here is not the one that the backup's keys were made under: no key of it would be good."
            f" Set {variable('key_pepper')} to that one, or name a WAYBILL_STATE without one"
        )
    if made.previous_pepper is not None and made.previous_pepper not in prints:
        raise BackupError(
            "this backup was made during a change of the pepper, and its previous pepper is not known here. Set"
            f" {variable('key_pepper_previous')} to it"
        )
    return known


def _kept(folder: Path) -> Pepper | None:
    """Return the pepper in the backup, with the previous one; None if it was left out."""
    found = [
        (folder / name).read_text("ascii").strip() for name in (PEPPER, PREVIOUS_PEPPER) if (folder / name).is_file()
    ]
    return Pepper(*found) if found else None


def _keep_pepper(settings: Settings, state: Path, folder: Path, pepper: Pepper) -> None:
    """Write peppers that are no settings, and the first-run record, to the state folder; keep existing files."""
    if settings.key_pepper is None and not (state / PEPPER).exists():
        if pepper.previous is not None:
            write_private(state / PREVIOUS_PEPPER, pepper.previous + "\n")
        write_private(state / PEPPER, pepper + "\n")
    if (folder / FIRST_RUN).is_file() and not (state / FIRST_RUN).exists():
        write_private(state / FIRST_RUN, (folder / FIRST_RUN).read_text("utf-8"))


@contextmanager
def _shown() -> Iterator[tuple[Callable[[str, int], None], Callable[[str], None]]]:
    """Show a progress bar on a terminal; yield functions that report copied bytes of a table, and a new stage."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def say(table: str, octets: int) -> None:
            progress.update(task, description=table, advance=octets)

        def stage(words: str) -> None:
            progress.update(task, description=f"{words}…")

        yield say, stage


def _told(made: Manifest, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "madeAt": made.made_at,
        "schema": made.migrations[-1].name if made.migrations else "none",
        "tables": len(made.parts),
        "rows": made.rows,
        "bytes": sum((folder / part.file).stat().st_size for part in made.parts),
        "accounts": made.accounts,
        "events": made.events,
        "inFlight": msgspec.to_builtins(made.in_flight),
        "tookS": made.took_s,
    } | ({"clockAheadS": made.ahead_s} if made.ahead_s else {})
