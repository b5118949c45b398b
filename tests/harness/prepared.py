"""A PostgreSQL data folder with a migrated database, made once in a run and copied by each worker.

Making one takes 4 s of CPU (initdb, migrations), a copy 0.1 s. The first process of a run calls `begin` before it forks
its workers, and `end` after the last one; without workers, each server makes its own data.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import asyncpg

from engine.store.migrate import migrate
from ops.host import launch, server_paths
from ops.host.temporary_servers import temporary_servers
from tests.harness import memory
from tests.harness.patience import PATIENCE_S

TEMPLATE = "waybill_template"

_maker: tuple[int, Path] | None = None  # pid, and the file that names the data folder once that is ready


def use_servers(postgres: str | None, redis: str | None) -> None:
    """Let all servers of the tests run these programs: the folder of PostgreSQL's, and a Redis or Valkey."""
    if postgres is not None:
        folder = Path(postgres)
        said = subprocess.run([folder / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
        major = int(said.split()[2].partition(".")[0])
        server_paths.postgres_programs = lambda paths: (folder, major)
    if redis is not None:
        server_paths.valkey_program = lambda paths: Path(redis)


def begin(folder: Path) -> None:
    """Start a process that makes the data, and keeps them until `end`."""
    global _maker  # noqa: PLW0603 - one in a run, inherited by the workers
    ready = folder / "data-folder"
    first = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            launch.tie(first)
            _make(ready)
        finally:
            os._exit(1)
    _maker = (pid, ready)


def end() -> None:
    """Remove the data."""
    if _maker is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(_maker[0], signal.SIGTERM)
        os.waitpid(_maker[0], 0)


def model() -> Path | None:
    """Wait for the data folder and return it; None if this run has none, or it could not be made."""
    if _maker is None:
        return None
    ready = _maker[1]
    deadline = time.monotonic() + PATIENCE_S
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # another process makes the file; a worker waits for it once
    folder = ready.read_text() if ready.exists() else ""
    return Path(folder) if folder else None


def _make(ready: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; `end` follows
    try:
        with temporary_servers(memory.folder()) as servers:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # after the servers, which would inherit it
            asyncio.run(_fill(servers.database_url))
            servers.postgres.stop()
            _write(ready, str(servers.postgres.data))
            signal.sigwait({signal.SIGTERM})
    finally:
        if not ready.exists():
            _write(ready, "")


def _write(file: Path, text: str) -> None:
    aside = file.with_suffix(".new")
    aside.write_text(text)
    aside.rename(file)


async def _fill(url: str) -> None:
    await migrate(url)  # for servers of a test's own, which use this database
    connection = await asyncpg.connect(url.replace("/postgres?", "/template1?", 1))
    try:
        await connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE postgres STRATEGY file_copy")
    finally:
        await connection.close()
