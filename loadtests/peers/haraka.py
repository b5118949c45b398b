"""Haraka as a peer, with two processes: sending, signed by a plugin, and receiving, with SPF and DKIM plugins."""

import os
import shutil
from functools import partial
from pathlib import Path

from loadtests.peers.peer import CONFIGURATIONS, Peer, PeerPlace, installed


def _package() -> Path | None:
    """Return the folder of Haraka's package: from NODE_PATH, or where the program on PATH lies."""
    for folder in filter(None, os.environ.get("NODE_PATH", "").split(":")):
        if (Path(folder) / "Haraka" / "bin" / "haraka").is_file():
            return Path(folder) / "Haraka"
    found = shutil.which("haraka")
    return None if found is None else Path(found).resolve().parent.parent


def _missing(*plugins: str) -> str | None:
    if shutil.which("node") is None:
        return "the Debian package nodejs"
    package = _package()
    if package is None:
        return "the npm package Haraka (and its modules' folder in NODE_PATH)"
    for plugin in plugins:
        if not any((folder / plugin).is_dir() for folder in (package.parent, package / "node_modules")):
            return f"the npm package {plugin}, beside Haraka"
    return None


def _prepare(name: str, place: PeerPlace) -> list[list[str]]:
    """Write a configuration with its names filled in; return the command that runs Haraka with it."""
    source, target = CONFIGURATIONS / name, place.folder / "haraka"
    package = _package()
    assert package is not None
    shutil.copytree(package / "config", target / "config")  # as `haraka --install` does; ours on top
    for file in source.rglob("*"):
        if file.is_file():
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(place.filled(file.read_text("utf-8")), "utf-8")
    return [[installed("node"), str(package / "bin" / "haraka"), "-c", str(target)]]


def _prepare_signing(place: PeerPlace) -> list[list[str]]:
    command = _prepare("haraka", place)
    shutil.copy(place.key, place.folder / "haraka" / "config" / "dkim" / "peer.test" / "private")
    return command


HARAKA = Peer(
    name="haraka", about="Haraka, 2 processes, dkim plugin", signs=True,
    missing=partial(_missing, "haraka-plugin-dkim"), prepare=_prepare_signing,
)  # fmt: skip
RECEIVING_HARAKA = Peer(
    name="haraka", about="Haraka, 2 processes, spf and dkim plugins, discarding", signs=False,
    missing=partial(_missing, "haraka-plugin-spf", "haraka-plugin-dkim"), prepare=partial(_prepare, "haraka-receiving"),
)  # fmt: skip
