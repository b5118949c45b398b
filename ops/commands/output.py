"""Printing of command results: text for people, or one JSON value for programs.

Text has no Python notation: a missing value prints as `-`, a boolean as `yes` or `no`, a time as ISO 8601 in UTC, a
list as items separated by commas, a mapping as `name=value` pairs.
"""

import json
import sys
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import click
from msgspec import Struct, structs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.base import clock, ids

NOTHING = "-"
_PIPE_WIDTH = None if sys.stdout.isatty() else 200  # a pipe has no width: a fixed one keeps ids on one line
_MIN_LABEL = 14
console = Console(highlight=False, soft_wrap=True, width=_PIPE_WIDTH)


def show(value: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a result: as one JSON value, or its fields as lines and each list of rows as a table under its name."""
    if as_json:
        print_json(value)
        return
    plain = {name: one for name, one in value.items() if not _is_rows(one)}
    width = max((len(name) for name in plain), default=0)
    for name, one in plain.items():
        line(name, one, width=width)
    for name, rows in value.items():
        if _is_rows(rows):
            click.echo(f"\n{name}:" if plain else f"{name}:")
            table(rows, list(rows[0]))


def show_rows(rows: list[dict[str, Any]], columns: list[str], *, as_json: bool, empty: str = "None.") -> None:
    """Print rows: as one JSON value, or these columns as a table, or the line `empty` if there are none."""
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo(empty)
    else:
        table(rows, columns)


def print_json(value: object) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def record(row: Struct, **kinds: ids.Kind) -> dict[str, Any]:
    """Return a row as JSON values: camel-case names, times in ISO 8601, the ids in `kinds` with their prefix."""
    return {
        _camel(name): ids.format_id(kinds[name], value) if name in kinds and value is not None
        else clock.iso(value) if isinstance(value, datetime)
        else value
        for name, value in structs.asdict(row).items()
    }  # fmt: skip


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def line(name: str, value: object, *, width: int = 0) -> None:
    """Print one field; `width` is the length of the longest name in the group."""
    label = name.ljust(max(_MIN_LABEL, width))
    console.print(f"{label} {cell(value)}", markup=False)


def table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Print rows as a table without borders."""
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        shown.add_column(Text(column), overflow="fold")
    for row in rows:
        shown.add_row(*[Text(cell(row.get(column))) for column in columns])
    console.print(shown)


def cell(value: object) -> str:
    """Format one value for people (see the module docstring)."""
    match value:
        case None | "":
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case datetime():
            return clock.iso(value)
        case date():
            return value.isoformat()
        case Mapping():
            return " ".join(f"{name}={cell(one)}" for name, one in value.items()) or NOTHING
        case list() | tuple() | set() | frozenset():
            return ", ".join(cell(one) for one in value) or NOTHING
        case _:
            return str(value)


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)
