"""Revision of this installation, from git."""

import subprocess

from ops.host.bootstrap import ROOT

_GIT_S = 5.0


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
