"""The state folder of a host: its permissions, the lock of the running `ops up`, the pepper, and log files."""

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from engine.base.version import COMMAND
from ops.host import disk

LOG_LIMIT_BYTES = 10 * 1024 * 1024
PEPPER = "pepper"  # the file of the key pepper
PREVIOUS_PEPPER = "pepper-previous"  # that of the pepper before a change
_TAIL_BYTES = 8192
_PROBE_S = 0.2  # `holder` takes the lock for microseconds; that must not look like a second start


class AlreadyRunning(RuntimeError):  # noqa: N818 - named for what it says
    """Another process uses the state folder; `pid` is 0 if unknown."""

    def __init__(self, state: Path, pid: int) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"Waybill already runs on {state} ({who}). Stop it with `{COMMAND} stop`,"
            " or start a second one: set WAYBILL_STATE to another folder, and WAYBILL_PORT_BASE to the first of 7 free"
            " ports in a row, such as 18080."
        )
        self.pid = pid


class UnusableState(RuntimeError):  # noqa: N818 - named for what it says
    """The state folder can't be created, written or trusted; the text says what to do."""


class StateLock:
    """Lock file of a state folder, held while one supervisor uses it; the kernel releases it with the process."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        """Take the lock; raises AlreadyRunning if another process holds it, UnusableState if it can't be written."""
        try:
            file = os.fdopen(os.open(self._state / "lock", os.O_RDWR | os.O_CREAT, 0o644), "r+")
        except OSError as error:
            raise _unusable(self._state, error) from error
        deadline = time.monotonic() + _PROBE_S
        while not _locked(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                pid = _pid(file)
                file.close()
                raise AlreadyRunning(self._state, pid)
            time.sleep(0.01)  # a lock with a time limit does not exist
        try:
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):  # what it buffers can't be written either
                file.close()
            raise _unusable(self._state, error) from error
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


def holder(state: Path) -> int | None:
    """Return the pid of the `ops up` that runs on this state folder (0 if unknown), or None."""
    try:
        file = (state / "lock").open("r")
    except OSError:
        return None
    with file:
        return None if _locked(file, fcntl.LOCK_SH) else _pid(file)


def make_state(state: Path) -> Path:
    """Create the state folder if needed and return its absolute path; raises UnusableState.

    Other users have no access. A folder of root can be traversed (not listed), because the database user needs to
    reach its own part.
    """
    state = state.expanduser().absolute()
    try:
        if not state.is_dir():
            state.mkdir(parents=True)
            state.chmod(0o711 if os.geteuid() == 0 else 0o700)
        (state / "log").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(state, error) from error
    return state


def kept_pepper(state: Path) -> str:
    """Return the pepper of this state folder (64 hex digits), created at the first call; needs the lock.

    Without it every API key is invalid, so it is synced to disk before its first use.
    """
    kept = _read_pepper(state / PEPPER)
    if kept is None:
        kept = secrets.token_hex(32)
        write_private(state / PEPPER, kept + "\n")
    return kept


def kept_peppers(state: Path) -> dict[str, str | None]:
    """Return the values of the settings `key_pepper`, created at the first call, and `key_pepper_previous`."""
    return {"key_pepper": kept_pepper(state), "key_pepper_previous": _read_pepper(state / PREVIOUS_PEPPER)}


def _read_pepper(path: Path) -> str | None:
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    if len(text) != 64:
        raise UnusableState(
            f"{path} has {len(text)} characters instead of 64 hexadecimal digits. Restore it from a backup."
        )
    return text


def write_private(path: Path, text: str) -> None:
    """Replace a file of mode 0600 atomically: after a crash it has the old or the new content."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that files created or renamed in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a text file, at most 8 KB; empty if it can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def bound_log(path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """Rotate a log file that exceeds `limit_bytes` to `.log.1`.

    Copies and truncates: the process that writes it keeps the file open for appending.
    """
    try:
        if path.stat().st_size > limit_bytes:
            shutil.copyfile(path, path.with_suffix(".log.1"))
            os.truncate(path, 0)
    except FileNotFoundError:
        return


def _locked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid(file: IO[str]) -> int:
    text = file.read(32).strip()
    return int(text) if text.isdigit() else 0


def _unusable(state: Path, error: OSError) -> UnusableState:
    about_disk = disk.of_error(error, state)
    if about_disk is not None:
        return UnusableState(about_disk)
    why = error.strerror or str(error)
    return UnusableState(f"The state folder {state} can't be used ({why}). Set WAYBILL_STATE to a folder that you own.")
