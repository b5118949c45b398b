"""Read processes and their connections through /proc (proc(5)), and send them signals. Linux only."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"  # TCP_LISTEN in the column `st` of net/tcp
_PAGE: Final = 4096
_MEBIBYTE: Final = 1024 * 1024


def living() -> Iterator[int]:
    """Yield the pids of all processes that have not ended."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _stat(int(entry.name))[:1] not in ([], ["Z"]):
            yield int(entry.name)


def child_pids(parent: int) -> list[int]:
    """Return the running children of a process."""
    return [pid for pid in living() if _stat(pid)[1:2] == [str(parent)]]


def command_line(pid: int) -> str:
    """Return the words of a process's command line; "" when it has ended."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 when it has ended."""
    words = _read(pid, "statm").split()
    return int(words[1]) * _PAGE / _MEBIBYTE if words else 0.0


def open_files(pid: int) -> int:
    """Return the number of open files of a process; 0 when it has ended."""
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


def threads(pid: int) -> int:
    """Return the number of threads of a process; 0 when it has ended."""
    found = _read(pid, "status").partition(b"Threads:")[2].split()
    return int(found[0]) if found else 0


def works_in(pid: int, folder: bytes) -> bool:
    """Return True if the folder is in the process's environment, command line or working directory."""
    with suppress(OSError):
        where = os.fsencode(Path(f"/proc/{pid}/cwd").readlink())
        texts = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
        return where.startswith(folder + b"/") or any(_names(text, folder) for text in texts)
    return False


def connections_of(pid: int, port: int, *, accepted: bool = False) -> frozenset[int]:
    """Return the local ports of a process's established connections to `port`, or the remote ports of those that it
    `accepted` at its own `port`. Raises OSError when the process has ended."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text("utf-8").splitlines()[1:]:
        words = line.split()
        here, there = (int(word.partition(":")[2], 16) for word in words[1:3])
        server, client = (here, there) if accepted else (there, here)
        if words[9] in inodes and server == port and words[3] != _LISTENING:
            found.add(client)
    return frozenset(found)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(pid: int, *, quit_first: bool = False) -> None:
    """Send SIGKILL; with `quit_first`, SIGQUIT if it is a process of PostgreSQL."""
    quits = quit_first and _read(pid, "comm").strip() == b"postgres"
    signal_all([pid], signal.SIGQUIT if quits else signal.SIGKILL)


def _names(text: bytes, folder: bytes) -> bool:
    """Return True when `text` contains `folder` as a whole path or the beginning of one."""
    at = text.find(folder)
    return at >= 0 and text[at + len(folder) : at + len(folder) + 1] in (b"", b"/", b"\0")


def _stat(pid: int) -> list[str]:
    """Return state, parent and further fields of a process; [] when it has ended."""
    return _read(pid, "stat").decode("utf-8", "replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
