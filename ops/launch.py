"""Starts one program so that it ends with its starter and, where asked, as an unprivileged user.

Runs twice: imported, it builds the command line; as a script it is the short-lived first stage of the
child, which gives up privileges, asks the kernel for a signal at its parent's death and becomes the
program (same pid). A separate stage, and not `preexec_fn`, because Python code between fork and exec can
deadlock a parent that has threads.
"""

import ctypes
import os
import signal
import sys
from typing import NamedTuple, NoReturn

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_KEEP = -1


class Identity(NamedTuple):
    """A system user that a server runs as."""

    uid: int
    gid: int
    name: str


def command(argv: list[str], *, identity: Identity | None = None, death_signal: int = signal.SIGKILL) -> list[str]:
    """The command line that runs `argv` (absolute program path first) tied to this process.

    The tie is to the *thread* that starts it (prctl(2)): start children from the main thread.
    """
    uid, gid = (identity.uid, identity.gid) if identity else (_KEEP, _KEEP)
    stage = [sys.executable, "-I", "-S", os.path.abspath(__file__)]  # noqa: PTH100 - pathlib costs 10 ms
    return [*stage, str(os.getpid()), str(int(death_signal)), str(uid), str(gid), *argv]


def become(parent: int, death_signal: int, uid: int, gid: int, argv: list[str]) -> NoReturn:
    """Turn this process into `argv`; ends with 127 when that can't be done."""
    try:
        if uid != _KEEP:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        tie(parent, death_signal)  # after setuid, which clears the request
        os.execv(argv[0], argv)
    except OSError as error:
        print(f"can't start {argv[0]}: {error}", file=sys.stderr, flush=True)
        os._exit(127)


def tie(parent: int, death_signal: int = signal.SIGKILL) -> None:
    """Ask for `death_signal` when this process's parent dies (Linux); ends at once when it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died before the request: nobody would ever end us
            os._exit(127)


if __name__ == "__main__":
    _parent, _signal, _uid, _gid = (int(word) for word in sys.argv[1:5])
    become(_parent, _signal, _uid, _gid, sys.argv[5:])
