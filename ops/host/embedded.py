"""The embedded PostgreSQL and Valkey servers: set up, start, check and stop them as child processes.

Both listen on unix sockets only, in a folder that no other user can enter. `temporary_servers` starts
a separate pair in a temporary folder for tests.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar

from ops.host import disk, launch, server_paths, write_back
from ops.host.server_paths import CannotServe, ServerPaths
from ops.host.state import bound_log, sync_folder, tail

__all__ = ["CannotServe", "PostgresServer", "Server", "Temporary", "ValkeyServer", "temporary_servers"]

MAX_SOCKET_FOLDER = 80  # sun_path, which includes the socket's name, holds 108 bytes on Linux, 104 on macOS
START_TIMEOUT_S = 60.0  # long enough to recover a few gigabytes of WAL after a crash
RESTART_WINDOW_S = 5.0  # backends may hold shared memory briefly after the postmaster was killed
STOP_GRACE_S = 30.0
END_GRACE_S = 10.0  # PostgreSQL kills those of its processes that are left 5 s after SIGQUIT
_GIBIBYTE = 1024**3


class Server(ABC):
    """An embedded server. Start it from the main thread: it is killed when the thread that started it ends."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    last_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, state: Path, *, durable: bool = True) -> None:
        self._state = state
        self._durable = durable
        self._paths: ServerPaths | None = None
        self._sockets: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def paths(self) -> ServerPaths:
        """Return the paths of the server's folders, found on first use."""
        if self._paths is None:
            self._paths = server_paths.find_paths(self._state)
        return self._paths

    @property
    def log(self) -> Path:
        """Return the path of the server's log file."""
        return self.paths.state / "log" / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Return the process id of the server, or None if `start` has not run."""
        return self._process.pid if self._process else None

    @property
    def death_signal(self) -> signal.Signals:
        """Return the signal that the server receives when the process that started it is killed."""
        return self.stop_signal if self._durable else self.last_signal

    @abstractmethod
    def prepare(self) -> None:
        """Create the folders and data if missing (blocks, about 1 s the first time); raises CannotServe."""

    @abstractmethod
    def clear_leftovers(self) -> None:
        """Wait for processes of a killed predecessor and remove its files; called before every start."""

    @abstractmethod
    def argv(self) -> list[str]:
        """Return the server's command line, program path first."""

    @abstractmethod
    def ready(self, pid: int) -> bool:
        """Return True if the server with process id `pid` accepts connections."""

    @property
    def beside(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Return what to run while the server is ready, until it is cancelled; None for nothing."""
        return None

    def command(self) -> list[str]:
        """Return `argv`, wrapped to run as the servers' user and to end with this process."""
        return launch.command(self.argv(), identity=self.paths.identity, death_signal=self.death_signal, batch=True)

    def start(self) -> None:
        """Prepare and start the server, and wait until it accepts connections.

        Also restarts a server that was killed. Raises CannotServe with the end of the log.
        """
        self._reap()
        self.prepare()
        began = time.monotonic()
        while True:
            self.clear_leftovers()
            self._spawn()
            if self._wait_ready(began + START_TIMEOUT_S):
                return
            waited = time.monotonic() - began
            if self.alive() or waited > RESTART_WINDOW_S:
                self.kill()
                raise CannotServe(f"{self.name} did not start. The end of {self.log}:\n{tail(self.log)}")
            time.sleep(0.2)

    def alive(self) -> bool:
        """Return True while the process that `start` created is running."""
        return self._process is not None and self._process.poll() is None

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Shut the server down, by force after `grace_s` seconds; idempotent."""
        self._signal(self.stop_signal, grace_s)
        self.end()

    def end(self) -> None:
        """End the server at once, without saving anything; idempotent.

        PostgreSQL removes its shared memory. After SIGKILL that stays until the next start with the same data, or until
        a reboot, and the kernel has room for 4,096 segments (shmmni).
        """
        self._signal(self.last_signal, END_GRACE_S)
        self.kill()
        self.forget_sockets()

    def kill(self) -> None:
        """Kill the server with SIGKILL and wait for its exit."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def forget_sockets(self) -> None:
        """Remove the socket folder if it is outside the data folder."""
        if self._sockets is not None and self._sockets != self.paths.base / "run":
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None

    def socket_folder(self) -> Path:
        """Return the folder of the sockets (mode 0700, a short path); create it if missing."""
        if self._sockets is None:
            folder = self.paths.base / "run"
            if len(os.fsencode(folder)) <= MAX_SOCKET_FOLDER:
                self._sockets = server_paths.own_folder(self.paths, "run")
            else:
                self._sockets = Path(tempfile.mkdtemp(prefix="waybill-", dir=_short_temp()))
                if self.paths.identity is not None:
                    os.chown(self._sockets, self.paths.identity.uid, self.paths.identity.gid)
        return self._sockets

    def _signal(self, number: signal.Signals, patience_s: float) -> None:
        if self._process is not None and self.alive():
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)

    def _reap(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                raise CannotServe(f"{self.name} runs already (process {self._process.pid})") from None

    def _spawn(self) -> None:
        bound_log(self.log)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), env=server_paths.QUIET_ENV, cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _wait_ready(self, deadline: float) -> bool:
        while time.monotonic() < deadline:
            if not self.alive() or self._process is None:
                return False
            if self.ready(self._process.pid):
                return True
            time.sleep(0.01)
        return False


class PostgresServer(Server):
    """PostgreSQL on a unix socket; `durable=False` gives up crash safety for speed, for tests only.

    `model` is the data folder of a stopped server, which is copied instead of running initdb.
    """

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: ends sessions, writes a checkpoint
    last_signal = signal.SIGQUIT  # immediate: recovery at the next start

    _programs: Path
    _major: int
    _compression: str

    def __init__(self, state: Path, *, durable: bool = True, model: Path | None = None) -> None:
        super().__init__(state, durable=durable)
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
        """Return what writes changed files back, so that commits do not wait for many of them at once."""
        return functools.partial(write_back.keep_writing, self.data / "base") if self._durable else None

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
        while _working_in(self.data) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = _working_in(self.data)
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
        while _working_in(self.data) and time.monotonic() < deadline:
            time.sleep(0.01)

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
        return {
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


class ValkeyServer(Server):
    """Valkey (the Redis protocol) on a unix socket with an append-only file synced each second.

    Valkey holds only hints and counters: after a crash, hints of the lost second are recovered from PostgreSQL.
    """

    name = "valkey"
    stop_signal = signal.SIGTERM

    _program: Path

    @property
    def socket(self) -> Path:
        """Return the path of the unix socket."""
        return self.socket_folder() / "valkey.sock"

    @property
    def url(self) -> str:
        """Return the URL for redis-py."""
        return f"unix://{self.socket}"

    def prepare(self) -> None:
        """Find the program, and create the data folder if it is missing; raises CannotServe."""
        self._program = server_paths.valkey_program(self.paths)
        server_paths.own_folder(self.paths, "valkey")

    def argv(self) -> list[str]:
        """Return the command line with all settings; there is no configuration file."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.paths.base / "valkey"),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            # A refused write is reported and harmless (the queue row suffices); an evicted hint would go unnoticed.
            "maxmemory-policy": "noeviction",
            "maxmemory": "512mb",
            "daemonize": "no",
        }
        return [str(self._program), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def ready(self, pid: int) -> bool:  # noqa: ARG002 - no other server can listen on this socket
        """Return True if the server answers PING with PONG, which it does once the append-only file is loaded."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(1.0)
            try:
                link.connect(str(self.socket))
                link.sendall(b"PING\r\n")
                return link.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    def clear_leftovers(self) -> None:
        """Wait until a predecessor has exited: two writers would corrupt the append-only file. Raises CannotServe."""
        deadline = time.monotonic() + RESTART_WINDOW_S
        while self.ready(0) and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.ready(0):
            raise CannotServe(f"Another Valkey answers at {self.socket}; stop it first.")


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
    root = root or _short_temp()
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


_TEMPORARY = "waybill-test-"
_ABANDONED_AFTER_S = 60.0


def _clear_abandoned(root: Path) -> None:
    """Remove the folders of earlier test runs that are not locked and at least 60 s old."""
    for folder in root.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime < _ABANDONED_AFTER_S or folder.is_symlink():
                continue
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def _short_temp() -> Path:
    """Return the temporary folder, or /tmp if its path is too long for a unix socket."""
    usual = Path(tempfile.gettempdir())
    return usual if len(os.fsencode(usual)) <= MAX_SOCKET_FOLDER - 32 else Path("/tmp")  # noqa: S108 - mkdtemp follows


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


def _working_in(folder: Path) -> list[int]:
    """Return the pids of processes with the working directory `folder`: PostgreSQL's run in their data folder."""
    found = []
    real = folder.resolve()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == real:
                found.append(int(entry.name))
    return sorted(found)
