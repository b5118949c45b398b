"""No statement numbers more than twelve arguments by hand: wider ones name them (engine.store.row_sets)."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "engine", "mta", "ops", "shards")
MAX_ARGUMENTS = 12
_POSITION = re.compile(r"\$(\d+)")
_RUNS = frozenset({"execute", "fetch", "fetchrow", "fetchval", "first", "records"})


def files(kind: str) -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob(f"*.{kind}"))


def test_a_query_file_numbers_few_arguments() -> None:
    texts = {path: path.read_text("utf-8") for path in files("sql") if path.parent.name != "migrations"}

    assert texts
    assert not [
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if any(int(position) > MAX_ARGUMENTS for position in _POSITION.findall(text))
    ]


def test_no_call_lists_more_arguments_and_no_array_width_is_larger() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files("py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and _is_wide(node)
    ]

    assert not found


def _is_wide(call: ast.Call) -> bool:
    """Whether a call runs a statement with too many arguments, or makes too many arrays of rows."""
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    if name == "columns" and len(call.args) == 2 and isinstance(call.args[1], ast.Constant):
        return int(str(call.args[1].value)) > MAX_ARGUMENTS
    text = call.args[0] if call.args else None
    if name in _RUNS and isinstance(text, ast.Constant):
        return any(int(position) > MAX_ARGUMENTS for position in _POSITION.findall(str(text.value)))
    return name in _RUNS and len(call.args) > MAX_ARGUMENTS + 1  # beside the connection
