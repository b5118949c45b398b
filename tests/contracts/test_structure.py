"""Structure of the code that a newcomer relies on: one meaning for a class name, and imports without cycles."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "api", "mta", "shards", "ops", "loadtests")
_CLASS = re.compile(r"^[ \t]*class[ \t]+(\w+)[ \t]*[:(\[]", re.MULTILINE)


@cache
def _modules() -> dict[str, ast.Module]:
    """Return the syntax tree of every module by its dotted name."""
    return {_name(path): ast.parse(path.read_text("utf-8"), str(path)) for path in _files()}


def _files() -> Iterator[Path]:
    return (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the modules of the project that a module imports, also inside functions, but not for types alone."""
    names = _modules()
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found = members & names.keys()
            yield from found or {node.module}


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, also within functions and classes, but not those for type checkers alone."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, block, ()):
            if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                yield node
                yield from _executed(node)


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in _files():
        for name in _CLASS.findall(path.read_text("utf-8")):
            places[name].append(_name(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.exhaustive
def test_no_modules_import_each_other_in_a_cycle() -> None:
    """Remove modules that import no remaining module until none is left; what stays is part of a cycle."""
    left = {module: set(_imports(module, tree)) - {module} for module, tree in _modules().items()}
    while leaves := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in leaves}
    assert sorted(left) == []
