"""Launcher for child processes: the child ends with its parent and can run as an unprivileged user.

The file has two uses. Imported, it builds the command line. As a script, it is the first stage of the child: it drops
privileges, asks the kernel for a signal at its parent's death, passes on listening sockets as systemd does
(`engine.store.socket_activation`; only the child knows the pid for LISTEN_PID), and executes the program, which keeps
the pid. A separate stage instead of `preexec_fn`, because Python code between fork and exec can deadlock a parent that
has threads.
"""

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_KEEP = -1
_NOTHING = "-"
FIRST = 3  # sd_listen_fds(3)
_FIRST_TEMPORARY = 64  # above all final descriptors: duplicates stay here while descriptors 3 and up are replaced


class SystemUser(NamedTuple):
    """The system user that a server runs as."""

    uid: int
    gid: int
    name: str


def command(
    argv: list[str],
    *,
    identity: SystemUser | None = None,
    death_signal: int = signal.SIGKILL,
    sockets: Mapping[str, int] | None = None,
    batch: bool = False,
) -> list[str]:
    """Return the command line that runs `argv` (absolute program path first) and ends it when this process ends.

    Start it from the main thread: the kernel watches the *thread* that starts the child (prctl(2)). `sockets` maps
    names to inherited descriptors; the program receives them by systemd's protocol for socket activation. `batch` runs
    it under the scheduling policy that Waybill's own processes set themselves (`engine.base.scheduling`).
    """
    uid, gid = (identity.uid, identity.gid) if identity else (_KEEP, _KEEP)
    handed = ",".join(f"{name}={fd}" for name, fd in sockets.items()) if sockets else _NOTHING
    stage = [sys.executable, "-I", "-S", os.path.abspath(__file__)]  # noqa: PTH100 - pathlib costs 10 ms
    return [*stage, str(os.getpid()), str(int(death_signal)), str(uid), str(gid), str(int(batch)), handed, *argv]


def become(parent: int, death_signal: int, uid: int, gid: int, batch: int, handed: str, argv: list[str]) -> NoReturn:
    """Replace this process by `argv`; exits with 127 if that fails."""
    try:
        if batch and hasattr(os, "SCHED_BATCH"):
            with suppress(OSError):  # forbidden here: the server works under the default policy too
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        named = [one.partition("=") for one in handed.split(",")] if handed != _NOTHING else []
        pass_sockets([(name, int(fd)) for name, _, fd in named])
        if uid != _KEEP:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        tie(parent, death_signal)  # after setuid, which clears the request
        os.execv(argv[0], argv)
    except OSError as error:
        print(f"can't start {argv[0]}: {error}", file=sys.stderr, flush=True)
        os._exit(127)


def pass_sockets(sockets: list[tuple[str, int]]) -> None:
    """Move the sockets to descriptors 3 and up, in this order, then the pipe of `READY_FD` if it is set."""
    wanted = [fd for _, fd in sockets]
    ready = os.environ.get("READY_FD")
    if ready is not None:
        wanted.append(int(ready))
        os.environ["READY_FD"] = str(FIRST + len(sockets))
    waiting = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_TEMPORARY) for fd in wanted]
    for fd in wanted:
        os.close(fd)
    for target, fd in enumerate(waiting, start=FIRST):
        os.dup2(fd, target)
        os.close(fd)
    for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(variable, None)
    if sockets:
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = str(len(sockets))
        os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in sockets)


def tie(parent: int, death_signal: int = signal.SIGKILL) -> None:
    """Ask the kernel for `death_signal` at the death of this process's parent (Linux); exits if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died before the request, so no signal will come
            os._exit(127)


if __name__ == "__main__":
    _parent, _signal, _uid, _gid, _batch = (int(word) for word in sys.argv[1:6])
    become(_parent, _signal, _uid, _gid, _batch, sys.argv[6], sys.argv[7:])
