"""Version and revision of this installation, from `pyproject.toml` and git."""

import functools
import subprocess
import tomllib

from ops.process_specs import ROOT

_GIT_S = 5.0


@functools.cache
def version() -> str:
    """Return the version, such as `0.1.0`; `unknown` if `pyproject.toml` is missing."""
    try:
        return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        return "unknown"


def revision() -> str | None:
    """Return the commit of this checkout, with `-dirty` if files differ from it; None outside a checkout."""
    if not (ROOT / ".git").exists():
        return None
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=_GIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
