"""The embedded PostgreSQL server."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ops.host import disk, launch, server_paths, write_back
from ops.host.embedded import STOP_GRACE_S, Server
from ops.host.server_paths import CannotServe
from ops.host.state import sync_folder

_GIBIBYTE = 1024**3
# Beside the other settings, for a service of two processes with some 12 sessions.
_SMALL = {
    "max_connections": "40",
    "shared_buffers": "32MB",
    "wal_buffers": "1MB",
    "maintenance_work_mem": "16MB",
    "max_wal_size": "256MB",
    "min_wal_size": "64MB",
    "io_method": "sync",  # no processes that only read
    "max_worker_processes": "0",
    "max_parallel_workers": "0",
    "max_logical_replication_workers": "0",
    "max_wal_senders": "0",
    "autovacuum_max_workers": "1",
    "autovacuum_naptime": "60s",
    "bgwriter_delay": "2s",
    "wal_writer_delay": "2s",
}


class PostgresServer(Server):
    """PostgreSQL on a unix socket; `durable=False` gives up crash safety for speed, for tests only.

    `model` is the data folder of a stopped server, which is copied instead of running initdb. `small` takes little
    memory and wakes up rarely.
    """

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: ends sessions, writes a checkpoint
    last_signal = signal.SIGQUIT  # immediate: recovery at the next start

    _programs: Path
    _major: int
    _compression: str

    def __init__(self, state: Path, *, durable: bool = True, small: bool = False, model: Path | None = None) -> None:
        super().__init__(state, durable=durable, small=small)
        self._model = model

    @property
    def url(self) -> str:
        """Return the database URL; the permissions of the socket folder control access."""
        return f"postgresql://postgres@/postgres?host={self.socket_folder()}"

    @property
    def data(self) -> Path:
        """Return the data folder; its name contains the major version."""
        return self.paths.base / f"pg{self._major}"

    @property
    def beside(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Return the task that writes changed files to disk early, so that commits do not wait for many at once."""
        return (
            functools.partial(write_back.keep_writing, self.data / "base")
            if self._durable and not self._small
            else None
        )

    def prepare(self) -> None:
        """Find the programs, and create the data folder if it is missing; raises CannotServe."""
        self._programs, self._major = server_paths.postgres_programs(self.paths)
        self.socket_folder()
        if not (self.data / "PG_VERSION").is_file():
            self._make_data()
        probe = ["-D", str(self.data), "-c", "wal_compression=lz4", "-C", "wal_compression"]
        lz4 = server_paths.runs([str(self._programs / "postgres"), *probe], self.paths.identity)
        self._compression = "lz4" if lz4 else "off"  # pglz is always available, but costs more CPU than it saves

    def clear_leftovers(self) -> None:
        """Wait for processes of a killed predecessor, then remove pid files that name an unrelated process.

        After a reboot the recorded pid may belong to any program, and PostgreSQL would refuse to start. A file that
        names no running process stays: PostgreSQL checks it itself, with its shared memory. Raises CannotServe.
        """
        deadline = time.monotonic() + STOP_GRACE_S
        while working_in(self.data) and time.monotonic() < deadline:
            time.sleep(0.05)  # they are no children of this process, so it cannot wait for them
        left = working_in(self.data)
        if left:
            raise CannotServe(
                f"Another PostgreSQL works in {self.data} (process {left[0]}). Stop it with `kill -INT {left[0]}`"
            )
        for file in (self.data / "postmaster.pid", self.socket_folder() / ".s.PGSQL.5432.lock"):
            if _names_stranger(file):
                file.unlink()

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL and wait for its backends: each serves its session until it notices."""
        super().kill()
        deadline = time.monotonic() + STOP_GRACE_S
        while working_in(self.data) and time.monotonic() < deadline:
            time.sleep(0.01)  # as above

    def argv(self) -> list[str]:
        """Return the command line; settings are passed as flags, which override the configuration file."""
        words = [str(self._programs / "postgres"), "-D", str(self.data), "-k", str(self.socket_folder())]
        words += ["-p", "5432"]
        for setting, value in self._settings().items():
            words += ["-c", f"{setting}={value}"]
        return words

    def ready(self, pid: int) -> bool:
        """Check postmaster.pid: line 1 must be our pid (a stale file may say ready too), line 8 `ready`."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"

    def _settings(self) -> dict[str, str]:
        safe = "on" if self._durable else "off"
        found = {
            "listen_addresses": "",
            "unix_socket_permissions": "0700",
            "max_connections": "100",
            # The working set is the queue and the messages of the last minutes, not older ones.
            "shared_buffers": _shared_buffers(),
            "fsync": safe,
            "synchronous_commit": safe,
            "full_page_writes": safe,
            "wal_compression": self._compression,
            # A page is logged in full once per checkpoint: fewer checkpoints, less WAL. 2 GB of WAL is
            # replayed in well under a minute.
            "checkpoint_timeout": "15min",
            "max_wal_size": "2GB" if self._durable else "256MB",
            # WAL files that a checkpoint keeps for reuse: making a new one stops all commits meanwhile.
            "min_wal_size": "512MB" if self._durable else "80MB",
            # Queue rows live for milliseconds: vacuum must remove dead rows before they slow down index scans.
            "autovacuum_naptime": "10s",
            "autovacuum_vacuum_scale_factor": "0.05",
            "autovacuum_vacuum_cost_limit": "1000",
            # Statements look up what they name, so coarse statistics do. While 4,000 messages a second were accepted,
            # the analyses took 0.45 s of a processor every 10 s with PostgreSQL's own values (100 and 0.1).
            "default_statistics_target": "30",
            "autovacuum_analyze_scale_factor": "0.25",
            "jit": "off",  # short statements: compiling costs more than running
            "idle_in_transaction_session_timeout": "60s",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
            "log_checkpoints": "off",
            # A DETAIL line quotes the row: addresses and digests stay out of the log.
            "log_error_verbosity": "terse",
            "log_parameter_max_length_on_error": "0",
        } | ({} if self._durable else {"dynamic_shared_memory_type": "mmap"})  # no shared memory outlives a kill
        return found | (_SMALL if self._small else {})

    def _make_data(self) -> None:
        """Run initdb in another folder, then rename it: an interrupted start leaves no incomplete data folder."""
        aside = self.paths.base / f"pg{self._major}.new"
        shutil.rmtree(aside, ignore_errors=True)
        if self._model is not None:
            subprocess.run(["cp", "-a", str(self._model), str(aside)], check=True, timeout=60)
            aside.rename(self.data)
            return
        server_paths.own_folder(self.paths, aside.name)
        words = [str(self._programs / "initdb"), "-D", str(aside), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        # The session that needs a new WAL file fills it with zeros, and all others wait to commit meanwhile:
        # 40 to 65 ms with the usual files of 16 MB. Measured: ops/decisions/0085.
        words += ["--locale=C", "--no-instructions", "--wal-segsize=1"] + ([] if self._durable else ["--no-sync"])
        done = subprocess.run(
            launch.command(words, identity=self.paths.identity),
            check=False, capture_output=True, text=True, errors="replace", timeout=300,
            stdin=subprocess.DEVNULL, env=server_paths.QUIET_ENV, cwd="/",
        )  # fmt: skip
        if done.returncode != 0:
            output = done.stdout + done.stderr
            about_disk = disk.of_output(output, self.paths.base)
            raise CannotServe(about_disk or f"initdb could not make {self.data}:\n{output[-2000:]}")
        aside.rename(self.data)
        sync_folder(self.paths.base)


def _shared_buffers() -> str:
    """Return the value of shared_buffers: 256 MB, or 128 MB on a host with less than 4 GB of memory."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        memory = 0
    return "256MB" if memory >= 4 * _GIBIBYTE else "128MB"


def _names_stranger(file: Path) -> bool:
    """Return True if the pid in the first line of `file` is a running process.

    The caller has checked that no running process uses this data folder. That check needs /proc; without /proc the
    result is always False.
    """
    try:
        pid = int(file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return False
    return Path("/proc/self").exists() and Path("/proc", str(pid)).exists()


def working_in(folder: Path) -> list[int]:
    """Return the pids of processes with the working directory `folder`: PostgreSQL's run in their data folder."""
    found = []
    real = folder.resolve()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == real:
                found.append(int(entry.name))
    return sorted(found)
