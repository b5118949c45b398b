"""Exim as a peer, signing in its own SMTP transport.

Exim delivers each message in a process that no other awaits, whose CPU is therefore not counted with that of a parent
but taken from the machine's. In a process namespace of its own all processes end with the daemon.
"""

import os
import pwd
from typing import Final

from loadtests.peers.peer import Peer, PeerPlace, installed, owned_folder, program

_PROGRAMS: Final = ("exim4", "exim")
_USERS: Final = ("Debian-exim", "exim")  # Debian's, and that of other systems


def _missing() -> str | None:
    if not any(program(name) for name in _PROGRAMS):
        return "the Debian package exim4-daemon-light"
    if _user() is None:
        return f"a system user named {' or '.join(_USERS)}"
    if program("unshare") is None:
        return "the Debian package util-linux"
    return None if os.geteuid() == 0 else "root's rights: Exim starts as root"


def _prepare(place: PeerPlace) -> list[list[str]]:
    user, name = _user(), next(name for name in _PROGRAMS if program(name))
    assert user is not None
    for folder in ("spool", "log"):
        owned_folder(place.folder / folder, user)
    config = place.folder / "exim.conf"
    config.write_text(place.configuration("exim/exim.conf", {"PROGRAM": installed(name), "USER": user}), "utf-8")
    apart = [installed("unshare"), "--pid", "--fork", "--kill-child=SIGKILL"]
    return [[*apart, installed(name), "-bdf", "-q1m", "-C", str(config)]]


def _user() -> str | None:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _USERS if name in known), None)


EXIM = Peer(
    name="exim", about="Exim tuned, signing itself", signs=True, missing=_missing, prepare=_prepare, awaits=False
)
