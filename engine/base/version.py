"""Version of this installation, from `pyproject.toml`."""

import functools
import tomllib
from pathlib import Path

_FILE = Path(__file__).resolve().parents[2] / "pyproject.toml"


@functools.cache
def version() -> str:
    """Return the version, such as `0.1.0`; `unknown` if `pyproject.toml` is missing."""
    try:
        return str(tomllib.loads(_FILE.read_text("utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        return "unknown"
