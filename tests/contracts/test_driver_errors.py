"""Exceptions of the drivers stay inside `engine.store`: everybody else sees those of its borders."""

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRIVERS = ("asyncpg", "redis")
SERVICE = ("api", "engine", "loadtests", "mta", "ops", "shards")
INSIDE = ("engine/store/",)
# These open sessions of their own with the driver: a backup copies tables whole, and drills break servers on purpose.
OWN_SESSIONS = ("ops/account_moves/", "ops/backup/", "ops/drill/", "loadtests/drill/")


def test_only_the_store_names_exceptions_of_a_driver() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for folder in SERVICE
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith((*INSIDE, *OWN_SESSIONS))
        for line, name in _driver_names(ast.parse(path.read_text("utf-8")))
        if _is_exception(name)
    ]
    assert found == []


def test_the_search_finds_every_way_to_name_an_exception() -> None:
    source = (
        "import asyncpg\nimport redis.asyncio as redis\nfrom asyncpg.exceptions import DeadlockDetectedError as Dead\n"
        "asyncpg.exceptions.UniqueViolationError\nasyncpg.DataError\nredis.RedisError\nasyncpg.Pool\n"
    )
    found = sorted(name for _, name in _driver_names(ast.parse(source)) if _is_exception(name))
    assert found == [
        "asyncpg.DataError", "asyncpg.exceptions.DeadlockDetectedError", "asyncpg.exceptions.UniqueViolationError",
        "redis.asyncio.RedisError",
    ]  # fmt: skip


def _driver_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a module takes from a driver."""
    local: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] in DRIVERS:
                    local[one.asname or one.name.split(".")[0]] = one.name if one.asname else one.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in DRIVERS and not node.level:
            for one in node.names:
                local[one.asname or one.name] = f"{node.module}.{one.name}"
                yield node.lineno, f"{node.module}.{one.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (dotted := _dotted(node)) is not None:
            first, _, rest = dotted.partition(".")
            if first in local:
                yield node.lineno, f"{local[first]}.{rest}"


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)) is not None:
        return f"{before}.{node.attr}"
    return None


@functools.cache
def _is_exception(name: str) -> bool:
    """Tell whether a dotted name is an exception class; `except*` tuples and calls come down to such names."""
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:at]))
        except ImportError:
            continue
        for part in parts[at:]:
            found = getattr(found, part, None)
        return isinstance(found, type) and issubclass(found, BaseException)
    return False
