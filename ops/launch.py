"""Starts one program so that it ends with its starter and, where asked, as an unprivileged user.

Runs twice: imported, it builds the command line; as a script it is the short-lived first stage of the
child, which gives up privileges, asks the kernel for a signal at its parent's death and becomes the
program (same pid). A separate stage, and not `preexec_fn`, because Python code between fork and exec can
deadlock a parent that has threads. It is also who puts listening sockets where the program looks for them and
names it as their receiver (`engine.store.socket_activation`): the starter does not know the pid beforehand.
"""

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_KEEP = -1
_NOTHING = "-"
_FIRST = 3  # sd_listen_fds(3)
_ABOVE = 64  # more than the sockets we hand over: where descriptors wait while places change


class SystemUser(NamedTuple):
    """A system user that a server runs as."""

    uid: int
    gid: int
    name: str


def command(
    argv: list[str],
    *,
    identity: SystemUser | None = None,
    death_signal: int = signal.SIGKILL,
    sockets: Mapping[str, int] | None = None,
) -> list[str]:
    """The command line that runs `argv` (absolute program path first) tied to this process.

    The tie is to the *thread* that starts it (prctl(2)): start children from the main thread. `sockets` are
    descriptors by name that the starter passes on; the program finds them as systemd would hand them over.
    """
    uid, gid = (identity.uid, identity.gid) if identity else (_KEEP, _KEEP)
    handed = ",".join(f"{name}={fd}" for name, fd in sockets.items()) if sockets else _NOTHING
    stage = [sys.executable, "-I", "-S", os.path.abspath(__file__)]  # noqa: PTH100 - pathlib costs 10 ms
    return [*stage, str(os.getpid()), str(int(death_signal)), str(uid), str(gid), handed, *argv]


def become(parent: int, death_signal: int, uid: int, gid: int, handed: str, argv: list[str]) -> NoReturn:
    """Turn this process into `argv`; ends with 127 when that can't be done."""
    try:
        _hand_over([] if handed == _NOTHING else [one.split("=", 1) for one in handed.split(",")])
        if uid != _KEEP:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        tie(parent, death_signal)  # after setuid, which clears the request
        os.execv(argv[0], argv)
    except OSError as error:
        print(f"can't start {argv[0]}: {error}", file=sys.stderr, flush=True)
        os._exit(127)


def _hand_over(sockets: list[list[str]]) -> None:
    """Sockets to the descriptors from 3 on, in this order; behind them the pipe of `READY_FD`, where there is one."""
    wanted = [int(fd) for _, fd in sockets]
    ready = os.environ.get("READY_FD")
    if ready is not None:
        wanted.append(int(ready))
        os.environ["READY_FD"] = str(_FIRST + len(sockets))
    waiting = [fcntl.fcntl(fd, fcntl.F_DUPFD, _ABOVE) for fd in wanted]
    for fd in wanted:
        os.close(fd)
    for place, fd in enumerate(waiting, start=_FIRST):
        os.dup2(fd, place)
        os.close(fd)
    for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(variable, None)
    if sockets:
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = str(len(sockets))
        os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in sockets)


def tie(parent: int, death_signal: int = signal.SIGKILL) -> None:
    """Ask for `death_signal` when this process's parent dies (Linux); ends at once when it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died before the request: nobody would ever end us
            os._exit(127)


if __name__ == "__main__":
    _parent, _signal, _uid, _gid = (int(word) for word in sys.argv[1:5])
    become(_parent, _signal, _uid, _gid, sys.argv[5], sys.argv[6:])
