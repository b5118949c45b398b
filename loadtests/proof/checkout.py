"""The revision of this checkout, from git, and the machine and programs that a proof names."""

import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

from loadtests.bench import measure
from loadtests.kit.service import clear, make_folder
from loadtests.proof.record import Machine
from ops.host import server_paths
from ops.host.process_specs import ROOT

_GIT_S: Final = 30.0
_VERSION_S: Final = 30.0


class NoCheckout(RuntimeError):  # noqa: N818 - named for what it says
    """Git does not know this folder, or not the revision; the text says what to do."""


class WorkTree(Struct, frozen=True):
    """The commit of the work tree, and whether files differ from it or are new."""

    revision: str
    dirty: bool


def work_tree() -> WorkTree:
    """Return the state of this checkout; raises NoCheckout."""
    return WorkTree(resolved("HEAD"), bool(_git("status", "--porcelain")))


def resolved(name: str) -> str:
    """Return the commit (40 hex digits) of a branch, a tag or a shortened commit; raises NoCheckout."""
    return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()


def changed_between(revision: str, later: str) -> list[str]:
    """Return the files that differ between two commits, by their path in the checkout; raises NoCheckout."""
    listed = _git("diff", "--name-only", "-z", resolved(revision), resolved(later))
    return [name for name in listed.split("\0") if name]


def machine() -> Machine:
    """Describe this machine and the programs of the service."""
    folder = make_folder("waybill-proof-")
    try:
        found = measure.machine(folder, "")
        paths = server_paths.find_paths(folder / "state")
        postgres, _ = server_paths.postgres_programs(paths)
        versions = [_version(program) for program in (postgres / "postgres", server_paths.valkey_program(paths))]
    finally:
        clear(folder)
    return Machine(
        cpu=str(found["cpu"]), cores=int(str(found["cores"])), memory_gb=float(str(found["memory_gb"])),
        kernel=str(found["kernel"]), python=f"{found['python']}, {found['python_build']}", postgresql=versions[0],
        valkey=versions[1],
    )  # fmt: skip


def _version(program: Path) -> str:
    """Return the version from `postgres (PostgreSQL) 18.6` or `Valkey server v=9.1.0 sha=…`."""
    done = subprocess.run(
        [str(program), "--version"], check=True, capture_output=True, text=True, timeout=_VERSION_S,
        env=server_paths.QUIET_ENV,
    )  # fmt: skip
    words = done.stdout.split()
    numbered = next((word.removeprefix("v=") for word in words if word.startswith("v=")), None)
    return numbered or words[words.index("(PostgreSQL)") + 1]


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_GIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCheckout(f"git can't be run here: {error}") from error
    if done.returncode != 0:
        why = done.stderr.strip() or f"{words[-1].removesuffix('^{commit}')} is no commit of this repository"
        raise NoCheckout(f"git {words[0]}: {why}")
    return done.stdout
