"""Mail servers that receive, for `ops loadtest peers-receiving`: Postfix without checks, Haraka with SPF and DKIM."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from loadtests.bench.service import DOMAIN
from loadtests.peers.haraka import filled_configuration, haraka_package
from loadtests.peers.peer import Peer, PeerPlace, installed, program

_CHECK_S: Final = 30.0


def _missing_postfix() -> str | None:
    if program("postfix") is None:
        return "the Debian package postfix"
    return None if os.geteuid() == 0 else "root's rights: Postfix starts as root"


def _prepare_postfix(place: PeerPlace) -> list[list[str]]:
    user = pwd.getpwnam("postfix")
    config, programs = place.folder / "config", _programs()
    config.mkdir()
    names = {"DOMAIN": DOMAIN, "UID": str(user.pw_uid), "GID": str(user.pw_gid), "PROGRAMS": programs}
    for name in ("main.cf", "master.cf"):
        (config / name).write_text(place.configuration(f"postfix-receiving/{name}", names), "utf-8")
    (place.folder / "queue").mkdir(mode=0o755)
    for name in ("data", "mail"):
        (place.folder / name).mkdir(mode=0o700)
        os.chown(place.folder / name, user.pw_uid, user.pw_gid)
    postfix = installed("postfix")
    subprocess.run([postfix, "-c", str(config), "check"], check=True, capture_output=True, timeout=_CHECK_S)
    asked = [str(Path(postfix).with_name("postconf")), "-c", str(config), "-h", "daemon_directory"]
    daemons = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=_CHECK_S).stdout.strip()
    return [[f"{daemons}/master", "-c", str(config), "-s"]]


def _programs() -> str:
    """Return the settings of a Postfix that was unpacked elsewhere than where Debian installs it, "" otherwise."""
    root = Path(installed("postfix")).resolve().parents[2]
    if root == Path("/"):
        return ""
    folders = {
        "command_directory": "usr/sbin", "daemon_directory": "usr/lib/postfix/sbin", "meta_directory": "etc/postfix",
        "shlib_directory": "usr/lib/postfix", "sendmail_path": "usr/sbin/sendmail", "mailq_path": "usr/bin/mailq",
        "newaliases_path": "usr/bin/newaliases",
    }  # fmt: skip
    lines = [f"{name} = {root / folder}" for name, folder in folders.items()]
    return "\n".join([*lines, f"import_environment = MAIL_CONFIG MAIL_DEBUG LD_LIBRARY_PATH={root}/usr/lib/postfix"])


def _missing_haraka() -> str | None:
    if shutil.which("node") is None:
        return "the Debian package nodejs"
    package = haraka_package()
    if package is None:
        return "the npm package Haraka (and its modules' folder in NODE_PATH)"
    for plugin in ("haraka-plugin-spf", "haraka-plugin-dkim"):
        if not any((folder / plugin).is_dir() for folder in (package.parent, package / "node_modules")):
            return f"the npm package {plugin}, beside Haraka"
    return None


def _prepare_haraka(place: PeerPlace) -> list[list[str]]:
    return filled_configuration(place, "haraka-receiving")


RECEIVERS: Final = {
    peer.name: peer
    for peer in (
        Peer(
            name="postfix", about="Postfix tuned, virtual maildir, no checks", signs=False,
            missing=_missing_postfix, prepare=_prepare_postfix,
        ),
        Peer(
            name="haraka", about="Haraka, 2 processes, spf and dkim plugins, discarding", signs=False,
            missing=_missing_haraka, prepare=_prepare_haraka,
        ),
    )
}  # fmt: skip
