"""Version of this installation, from `pyproject.toml`, and the command that people type for it."""

import functools
import tomllib
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
INSTALLED: Final = (_ROOT / "__init__.py").is_file()  # as the package `waybill` (`ops.host.installed`), not a checkout
COMMAND: Final = "waybill" if INSTALLED else "python3 -m ops"


@functools.cache
def version() -> str:
    """Return the version, such as `0.1.0`; `unknown` if `pyproject.toml` is missing."""
    try:
        return str(tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        return "unknown"


def with_command(text: str) -> str:
    """Return a text for readers with the command of this installation in place of the checkout's."""
    return text.replace("python3 -m ops ", f"{COMMAND} ")
