"""A separate pair of embedded servers in a temporary folder, for tests."""

import contextlib
import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ops.host.embedded import short_temp
from ops.host.postgres_server import PostgresServer
from ops.host.valkey_server import ValkeyServer

_TEMPORARY = "waybill-test-"
_ABANDONED_AFTER_S = 60.0


class Temporary:
    """A temporary pair of servers; a test may kill and restart `postgres` and `valkey`."""

    def __init__(self, folder: Path, model: Path | None = None) -> None:
        self.folder = folder
        self.postgres = PostgresServer(folder, durable=False, model=model)
        self.valkey = ValkeyServer(folder, durable=False)

    @property
    def database_url(self) -> str:
        """Return the URL of the PostgreSQL superuser; tests may create databases and templates."""
        return self.postgres.url

    @property
    def redis_url(self) -> str:
        """Return the URL of the Valkey server."""
        return self.valkey.url


@contextlib.contextmanager
def temporary_servers(root: Path | None = None, *, model: Path | None = None) -> Iterator[Temporary]:
    """Start both servers in a new folder under `root` (default: the temporary folder); remove it at the end.

    PostgreSQL starts with a copy of the data folder `model`, if one is given. Call it from the main thread. Folders
    that killed test runs left behind are removed first.
    """
    root = root or short_temp()
    _clear_abandoned(root)
    folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=root))
    folder.chmod(0o711)  # the servers' user may pass through, but not list it
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        servers = Temporary(folder, model)
        try:
            servers.postgres.start()
            servers.valkey.start()
            yield servers
        finally:
            servers.valkey.end()
            servers.postgres.end()
            for path in {folder, servers.postgres.paths.base}:
                shutil.rmtree(path, ignore_errors=True)


def _clear_abandoned(root: Path) -> None:
    """Remove the folders of earlier test runs that are not locked and at least 60 s old."""
    for folder in root.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime < _ABANDONED_AFTER_S or folder.is_symlink():
                continue
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
