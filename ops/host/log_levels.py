"""Implementation of `ops log level`: change the log level of running processes for a limited time.

The supervisor writes levels with end times to `LEVELS_FILE` in the state folder. Its processes read the file once a
second (`engine.base.logs`) and return to the normal level by themselves.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from engine.base.clock import iso
from engine.base.log_levels import LEVELS_FILE, read_levels
from ops.host import control
from ops.host.control import Refused, Say
from ops.host.rolling import chosen, kind
from ops.host.state import write_private
from ops.host.supervise import Supervisor

LEVELS: Final = ("debug", "info", "warning", "error")
DEFAULT: Final = "default"  # ends what was set
KINDS: Final = (
    "api",
    "front",
    "host",
    "relay",
    "mx",
    "mta",
    "worker",
)  # others do not use structlog
_ASK_S: Final = 10.0


class Levels:
    """The log levels that differ from the settings, kept in a file of the state folder."""

    def __init__(self, state: Path, supervisor: Supervisor) -> None:
        self._file = state / LEVELS_FILE
        self._supervisor = supervisor

    async def act(self, asked: dict[str, Any], say: Say) -> None:
        """Handle a request (`ops.host.control`): change levels if `level` is given, then send the current levels."""
        known = [one.name for one in self._supervisor.children() if kind(one.name) in KINDS and " " not in one.name]
        match asked:
            case {"level": str(level), "names": [*names], "for_s": int() | float() as for_s}:
                if level not in (*LEVELS, DEFAULT):
                    raise Refused(f"There is no log level {level!r}; there are: {', '.join((*LEVELS, DEFAULT))}.")
                self._change(chosen(known, [str(name) for name in names]), level, for_s)
        for row in self._rows(known):
            await say({"process": row})

    def _change(self, names: Sequence[str], level: str, for_s: float) -> None:
        now = time.time()
        kept = {name: one for name, one in read_levels(self._file, now).items() if name not in names}
        if level != DEFAULT:
            kept |= {name: {"level": level, "until": now + for_s} for name in names}
        write_private(self._file, json.dumps(kept) + "\n")

    def _rows(self, known: Sequence[str]) -> list[dict[str, Any]]:
        changed = read_levels(self._file, time.time())
        return [
            {"process": name, "level": changed[name]["level"], "until": _ends(changed[name]["until"])}
            if name in changed
            else {"process": name, "level": DEFAULT, "until": None}
            for name in known
        ]


def _ends(until: float) -> str:
    return iso(datetime.fromtimestamp(until, UTC))


def forget(state: Path) -> None:
    """Delete all changed levels, at the start of the service."""
    (state / LEVELS_FILE).unlink(missing_ok=True)


def ask(state: Path, level: str | None, names: Sequence[str], for_s: float) -> list[dict[str, Any]]:
    """Change the level of the named processes (none: all) unless `level` is None; returns all levels.

    Raises the errors of `ops.host.control.ask`.
    """
    question: dict[str, Any] = {"do": "log level"}
    if level is not None:
        question |= {"level": level, "names": list(names), "for_s": for_s}
    return [line["process"] for line in control.ask(state, question, _ASK_S)]
