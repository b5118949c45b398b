"""Read the log levels that `ops log level` changed for a limited time, from a file in the state folder."""

import json
from pathlib import Path
from typing import Any, Final

LEVELS_FILE: Final = "log-levels.json"  # process -> {"level": "debug", "until": seconds of the wall clock}


def read_levels(file: Path, now: float) -> dict[str, dict[str, Any]]:
    """Return the levels that apply at `now`, by process; an empty dict if the file is missing or unreadable."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: one for name, one in found.items() if one["until"] > now}
