"""Postfix as a peer: sending unsigned, or signing by a milter (OpenDKIM or rspamd); receiving without checks."""

import os
import pwd
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from loadtests.bench.service import DOMAIN
from loadtests.peers.peer import Peer, PeerPlace, installed, owned_folder, program

_CHECK_S: Final = 30.0
_RSPAMD_USER: Final = "_rspamd"  # the Debian package makes it
# The settings of a Postfix that was unpacked elsewhere than where Debian installs it.
_PROGRAMS: Final = {
    "command_directory": "usr/sbin", "daemon_directory": "usr/lib/postfix/sbin", "meta_directory": "etc/postfix",
    "shlib_directory": "usr/lib/postfix", "sendmail_path": "usr/sbin/sendmail", "mailq_path": "usr/bin/mailq",
    "newaliases_path": "usr/bin/newaliases",
}  # fmt: skip


def _missing(milter: str = "") -> str | None:
    for name in filter(None, ("postfix", milter)):
        if program(name) is None:
            return f"the Debian package {name}"
    return None if os.geteuid() == 0 else "root's rights: Postfix starts as root"


def _prepare(place: PeerPlace, configuration: str = "postfix", milter: str = "") -> list[list[str]]:
    user, config, postfix = pwd.getpwnam("postfix"), place.folder / "config", installed("postfix")
    names = {
        "MILTER": milter, "DOMAIN": DOMAIN, "UID": str(user.pw_uid), "GID": str(user.pw_gid), "PROGRAMS": _programs(),
    }  # fmt: skip
    config.mkdir()
    for name in ("main.cf", "master.cf"):
        (config / name).write_text(place.configuration(f"{configuration}/{name}", names), "utf-8")
    (place.folder / "queue").mkdir(mode=0o755)
    for name in ("data", "mail"):
        owned_folder(place.folder / name, "postfix")
    # `postfix start-fg` keeps a shell between this process and the master, which would outlive this process. So
    # `postfix check` lays out the queue as `start` does, and the master is started here.
    subprocess.run([postfix, "-c", str(config), "check"], check=True, capture_output=True, timeout=_CHECK_S)
    asked = [str(Path(postfix).with_name("postconf")), "-c", str(config), "-h", "daemon_directory"]
    daemons = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=_CHECK_S).stdout.strip()
    return [[f"{daemons}/master", "-c", str(config), "-s"]]


def _programs() -> str:
    root = Path(installed("postfix")).resolve().parents[2]
    if root == Path("/"):
        return ""
    lines = [f"{name} = {root / folder}" for name, folder in _PROGRAMS.items()]
    return "\n".join([*lines, f"import_environment = MAIL_CONFIG MAIL_DEBUG LD_LIBRARY_PATH={root}/usr/lib/postfix"])


def _opendkim(place: PeerPlace) -> list[str]:
    config = place.folder / "opendkim.conf"
    config.write_text(place.configuration("opendkim/opendkim.conf"), "utf-8")
    return [installed("opendkim"), "-f", "-x", str(config)]


def _rspamd(place: PeerPlace) -> list[str]:
    config = place.folder / "rspamd.conf"
    config.write_text(place.configuration("rspamd/rspamd.conf"), "utf-8")
    owned_folder(place.folder / "rspamd", _RSPAMD_USER)
    suffixes = place.folder / "rspamd" / "suffixes"
    suffixes.write_text("test\n", "utf-8")
    suffixes.chmod(0o644)
    return [installed("rspamd"), "-f", "-u", _RSPAMD_USER, "-g", _RSPAMD_USER, "-c", str(config)]


def _prepare_with(signer: Callable[[PeerPlace], list[str]], place: PeerPlace) -> list[list[str]]:
    return [signer(place), *_prepare(place, milter=place.configuration("postfix/milter.cf"))]


POSTFIX_WITH_OPENDKIM = Peer(
    name="postfix-opendkim", about="Postfix tuned, signing by OpenDKIM", signs=True, has_milter=True,
    missing=partial(_missing, "opendkim"), prepare=partial(_prepare_with, _opendkim),
)  # fmt: skip
POSTFIX_WITH_RSPAMD = Peer(
    name="postfix-rspamd", about="Postfix tuned, signing by rspamd", signs=True, has_milter=True,
    missing=partial(_missing, "rspamd"), prepare=partial(_prepare_with, _rspamd),
)  # fmt: skip
POSTFIX_UNSIGNED = Peer(
    name="postfix", about="Postfix tuned, unsigned", signs=False, missing=_missing, prepare=_prepare
)
RECEIVING_POSTFIX = Peer(
    name="postfix", about="Postfix tuned, virtual maildir, no checks", signs=False, missing=_missing,
    prepare=partial(_prepare, configuration="postfix-receiving"),
)  # fmt: skip
