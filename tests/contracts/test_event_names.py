"""Every event type is named once, in `engine/base/events.py`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.base.events import AccountEvent, EventType

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "engine/base/events.py"
FOLDERS = ("engine", "shards", "api", "mta", "ops")
NAMES = frozenset(EventType) | frozenset(AccountEvent)
SUBJECTS = frozenset(name.partition(".")[0] for name in AccountEvent)
# `account.sql` is a file's name, `template.id` a field of a request.
SUFFIXES = frozenset({"csv", "html", "id", "json", "py", "sql", "toml", "test", "variables"})

# A column `type` compared with literals, as in `e.type = 'accepted'` and `type IN ('accepted', 'scheduled')`.
_COMPARED = re.compile(r"\btype\s*(?:=|<>|IN|NOT IN)\s*\(?((?:\s*'[^']*'\s*,?)+)", re.IGNORECASE)
_LITERAL = re.compile(r"'([^']*)'")
_DOTTED = re.compile(r"([a-z_]+)\.([a-z_]*)")


def files(suffix: str) -> list[Path]:
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob(f"*.{suffix}"))
    return sorted(path for path in found if path != TABLE and "migrations" not in path.parts)


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """String literals with their lines, the beginnings of formatted ones among them."""
    yield from (
        (one.lineno, one.value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )


def is_event_name(text: str) -> bool:
    """`member.joined`, and `member.` as the beginning of a formatted string."""
    found = _DOTTED.fullmatch(text)
    return found is not None and found[1] in SUBJECTS and found[2] not in SUFFIXES


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_python_file_spells_the_name_of_an_account_event(folder: str) -> None:
    strays = [
        f"{path.relative_to(ROOT)}:{line} {text!r}"
        for path in files("py")
        if path.is_relative_to(ROOT / folder)
        for line, text in texts(ast.parse(path.read_text("utf-8")))
        if is_event_name(text)
    ]

    assert strays == [], "take these from engine.base.events.AccountEvent"


def test_sql_compares_event_types_only_with_names_of_the_table() -> None:
    compared = [
        (path, name)
        for path in files("sql")
        for literals in _COMPARED.findall(path.read_text("utf-8"))
        for name in _LITERAL.findall(literals)
    ]

    assert compared
    assert [(path, name) for path, name in compared if name not in NAMES] == []


def test_sql_spells_only_account_events_of_the_table() -> None:
    strays = [
        (path, name)
        for path in files("sql")
        for name in _LITERAL.findall(path.read_text("utf-8"))
        if is_event_name(name) and name not in NAMES
    ]

    assert strays == []


def test_no_name_stands_for_two_events() -> None:
    assert not frozenset(EventType) & frozenset(AccountEvent)
