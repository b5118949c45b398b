"""OpenSMTPD as a peer, signing by its filter opensmtpd-filter-dkimsign.

Its queue (/var/spool/smtpd) and its control socket (/var/run/smtpd.sock) have fixed paths (smtpd(8), FILES), so it
runs in a mount namespace of its own in which both lie in the peer's folder.
"""

import os
from typing import Final

from loadtests.peers.peer import Peer, PeerPlace, installed, program

# Mount the peer's folders over the fixed paths, then become the server.
_START: Final = """
set -e
mkdir -p /var/spool/smtpd
mount --bind "$1/spool" /var/spool/smtpd
mount --bind "$1/run" "$(readlink -f /var/run)"
mount --bind "$1/resolv.conf" "$(readlink -f /etc/resolv.conf)"
exec "$2" -d -f "$1/smtpd.conf"
"""


def _missing() -> str | None:
    if program("smtpd") is None:
        return "the Debian package opensmtpd (it replaces postfix: Debian installs one of the two)"
    if program("filter-dkimsign") is None:
        return "the Debian package opensmtpd-filter-dkimsign"
    if program("unshare") is None:
        return "the Debian package util-linux"
    return None if os.geteuid() == 0 else "root's rights: OpenSMTPD starts as root"


def _prepare(place: PeerPlace) -> list[list[str]]:
    for name in ("spool", "run"):
        (place.folder / name).mkdir(mode=0o711)
    # Without it each connection waits for a reverse lookup at the machine's name server: 5 s per lost reply.
    (place.folder / "resolv.conf").write_text("lookup file\n", "ascii")
    (place.folder / "resolv.conf").chmod(0o644)
    filter_program = installed("filter-dkimsign")
    text = place.configuration("opensmtpd/smtpd.conf", {"FILTER": filter_program})
    (place.folder / "smtpd.conf").write_text(text, "utf-8")
    return [
        [installed("unshare"), "--mount", "--propagation", "private", "sh", "-c", _START, "sh", str(place.folder),
         installed("smtpd")],
    ]  # fmt: skip


OPENSMTPD = Peer(
    name="opensmtpd",
    about="OpenSMTPD, signing by opensmtpd-filter-dkimsign",
    signs=True,
    missing=_missing,
    prepare=_prepare,
)
