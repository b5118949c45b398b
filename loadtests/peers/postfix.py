"""Postfix as a peer: unsigned, or signing by a milter (OpenDKIM or rspamd)."""

import os
import pwd
import subprocess
from pathlib import Path
from typing import Final

from loadtests.peers.peer import Peer, PeerPlace, installed, program

_CHECK_S: Final = 30.0
_RSPAMD_USER: Final = "_rspamd"  # the Debian package makes it


def _missing() -> str | None:
    if program("postfix") is None:
        return "the Debian package postfix"
    return None if os.geteuid() == 0 else "root's rights: Postfix starts as root"


def _missing_with_opendkim() -> str | None:
    return _missing() or (None if program("opendkim") else "the Debian package opendkim")


def _missing_with_rspamd() -> str | None:
    return _missing() or (None if program("rspamd") else "the Debian package rspamd")


def _prepare(place: PeerPlace, milter: str = "") -> list[list[str]]:
    config = place.folder / "config"
    config.mkdir()
    for name in ("main.cf", "master.cf"):
        (config / name).write_text(place.configuration(f"postfix/{name}", {"MILTER": milter}), "utf-8")
    (place.folder / "queue").mkdir(mode=0o755)
    _owned_folder(place.folder / "data", "postfix")
    postfix = installed("postfix")
    # `postfix start-fg` keeps a shell between this process and the master, which would outlive this process. So
    # `postfix check` lays out the queue as `start` does, and the master is started here.
    subprocess.run([postfix, "-c", str(config), "check"], check=True, capture_output=True, timeout=_CHECK_S)
    asked = [str(Path(postfix).with_name("postconf")), "-c", str(config), "-h", "daemon_directory"]
    daemons = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=_CHECK_S).stdout.strip()
    return [[f"{daemons}/master", "-c", str(config), "-s"]]


def _prepare_with_opendkim(place: PeerPlace) -> list[list[str]]:
    config = place.folder / "opendkim.conf"
    config.write_text(place.configuration("opendkim/opendkim.conf"), "utf-8")
    signer = [installed("opendkim"), "-f", "-x", str(config)]
    return [signer, *_prepare(place, place.configuration("postfix/milter.cf"))]


def _prepare_with_rspamd(place: PeerPlace) -> list[list[str]]:
    config = place.folder / "rspamd.conf"
    config.write_text(place.configuration("rspamd/rspamd.conf"), "utf-8")
    _owned_folder(place.folder / "rspamd", _RSPAMD_USER)
    suffixes = place.folder / "rspamd" / "suffixes"
    suffixes.write_text("test\n", "utf-8")
    suffixes.chmod(0o644)
    signer = [installed("rspamd"), "-f", "-u", _RSPAMD_USER, "-g", _RSPAMD_USER, "-c", str(config)]
    return [signer, *_prepare(place, place.configuration("postfix/milter.cf"))]


def _owned_folder(folder: Path, user: str) -> None:
    """Make a folder that only `user` can open."""
    folder.mkdir(mode=0o700)
    owner = pwd.getpwnam(user)
    os.chown(folder, owner.pw_uid, owner.pw_gid)


POSTFIX_WITH_OPENDKIM = Peer(
    name="postfix-opendkim",
    about="Postfix tuned, signing by OpenDKIM",
    signs=True,
    has_milter=True,
    missing=_missing_with_opendkim,
    prepare=_prepare_with_opendkim,
)
POSTFIX_WITH_RSPAMD = Peer(
    name="postfix-rspamd",
    about="Postfix tuned, signing by rspamd",
    signs=True,
    has_milter=True,
    missing=_missing_with_rspamd,
    prepare=_prepare_with_rspamd,
)
POSTFIX_UNSIGNED = Peer(
    name="postfix", about="Postfix tuned, unsigned", signs=False, missing=_missing, prepare=_prepare
)
