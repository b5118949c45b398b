"""Durations on the command line: `90s`, `10m`, `2h`, `3d`; a plain number means minutes."""

import re
from typing import Any, Final

import click

_SECONDS: Final = {"s": 1.0, "m": 60.0, "": 60.0, "h": 3_600.0, "d": 86_400.0}
_FORM: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)


class Duration(click.ParamType[float]):
    """Parameter type for a duration; the command receives seconds."""

    name = "duration"

    def __init__(self, *, min_s: float, max_s: float) -> None:
        self._min_s = min_s
        self._max_s = max_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds; fails the command if the text is not a duration or out of range."""
        if isinstance(value, (int, float)):
            return float(value)
        form = _FORM.fullmatch(str(value).strip().lower())
        if form is None:
            self.fail(f"{value!r} is not a duration; write for example 90s, 10m, 2h or 3d.", param, ctx)
        seconds = float(form[1]) * _SECONDS[form[2]]
        if not self._min_s <= seconds <= self._max_s:
            self.fail(f"{value} is out of range; give {self._min_s:g} s to {self._max_s / 86_400:g} days.", param, ctx)
        return seconds
