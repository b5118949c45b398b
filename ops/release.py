"""Which version of Waybill this is: the project file beside the code says so."""

import functools
import tomllib

from ops.fleet import ROOT


@functools.cache
def version() -> str:
    """Such as `0.1.0`; `unknown` where the project file is missing."""
    try:
        return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        return "unknown"
