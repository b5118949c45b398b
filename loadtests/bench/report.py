"""Output of benches: progress on standard error, the result's rows, and the report folder."""

import json
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

Say = Callable[[str], None]
Row = tuple[str, ...]  # of one cell: a line of text; of several: a row of a table; of none: a blank line


class Progress:
    """Prints progress and errors to standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, style="dim")

    def fail(self, text: str) -> None:
        """Print why there is no result."""
        self._console.print(text, style="red")


def show(rows: Sequence[Row]) -> None:
    """Print lines and tables; neighbouring rows of as many cells are one table, with numbers to the right."""
    for cells, block in groupby(rows, key=len):
        lines = list(block)
        widths = [max(len(line[column]) for line in lines) for column in range(cells)]
        is_number = [all(line[column][:1] in "-0123456789" for line in lines[1:]) for column in range(cells)]
        for line in lines:
            padded = (
                text.rjust(width) if numeric and place else text.ljust(width)
                for place, (text, width, numeric) in enumerate(zip(line, widths, is_number, strict=True))
            )  # fmt: skip
            print("  ".join(padded).rstrip())


def in_words(value: object) -> str:
    """Return a figure as people read it."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {one}" for name, one in value.items()) or "none"


def new_folder(root: Path) -> Path:
    """Create a new folder `reports/bench-<time>` below `root`."""
    name = time.strftime("bench-%Y%m%d-%H%M%S")
    folder = root / "reports" / name
    number = 1
    while folder.exists():
        number += 1
        folder = root / "reports" / f"{name}-{number}"
    folder.mkdir(parents=True)
    return folder


def write_json(result: dict[str, Any], folder: Path) -> None:
    """Write the figures to `bench.json` in the folder."""
    (folder / "bench.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", "utf-8")
