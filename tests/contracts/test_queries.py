"""Every named query holds against the migrated schema, fills its Struct, and has one caller."""

import ast
import functools
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date, datetime
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_type_hints
from uuid import UUID

import asyncpg
import pytest

import api
import engine
import loadtests
import mta
import ops
import shards
from engine.store.queries import REGISTRY, Conn, Queries, Query, RowQuery
from tests.conftest import NewDatabase

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (engine, mta, shards, api, ops, loadtests)
NEED_LOCUST = ("loadtests.scenarios", "loadtests.users")  # only `ops loadtest` installs it; they have no SQL

for _package in PACKAGES:
    for _module in pkgutil.walk_packages(_package.__path__, _package.__name__ + "."):
        if not _module.name.endswith("__main__") and not _module.name.startswith(NEED_LOCUST):
            importlib.import_module(_module.name)

QUERIES = sorted(REGISTRY, key=lambda query: (str(query.path), query.name))
ROW_QUERIES = [query for query in QUERIES if isinstance(query, RowQuery)]
OF_DIRECTORY = ROOT / "engine" / "cells" / "directory.sql"  # a database of its own

Connections = Callable[[Query], Conn]

# A column before or after the sign of a comparison with the clock.
BY_MOVING_CLOCK = r"(\w+)\s*[<>]=?\s*clock_timestamp\(\)|clock_timestamp\(\)\s*[<>]=?\s*(?:\w+\.)?(\w+)"

# What asyncpg makes of a column.
PYTHON: dict[str, type] = {
    "uuid": UUID, "text": str, "jsonb": str, "json": str, "date": date, "timestamptz": datetime, "bytea": bytes,
    "bool": bool, "int2": int, "int4": int, "int8": int, "xid": int, "float4": float, "float8": float,
}  # fmt: skip


def name_of(query: Query) -> str:
    return f"{query.path.relative_to(ROOT)}:{query.name}"


def sql_files() -> list[Path]:
    return sorted(
        path
        for package in PACKAGES
        for folder in package.__path__
        for path in Path(folder).rglob("*.sql")
        if path.parent.name != "migrations"
    )


@pytest.fixture
async def connections(pool: asyncpg.Pool, new_directory: NewDatabase) -> AsyncIterator[Connections]:
    """Yield a function that returns the connection to the database of a query."""
    directory = await asyncpg.connect(await new_directory())
    async with pool.acquire() as connection:
        yield lambda query: directory if query.path == OF_DIRECTORY else connection
    await directory.close()


async def test_every_query_can_be_prepared_on_the_migrated_database(connections: Connections) -> None:
    faults: dict[str, str] = {}
    for query in QUERIES:
        try:
            await connections(query).prepare(query.sql)
        except asyncpg.PostgresError as error:
            faults[name_of(query)] = str(error)

    assert not faults


async def test_columns_are_the_fields_of_the_struct_in_order(connections: Connections) -> None:
    faults: dict[str, list[str]] = {}
    for query in ROW_QUERIES:
        columns = (await connections(query).prepare(query.sql)).get_attributes()
        if found := misfits(query, columns):
            faults[name_of(query)] = found

    assert not faults


def misfits(query: RowQuery[Any], columns: Sequence[asyncpg.Attribute]) -> list[str]:
    """Return the columns that don't fit the fields of the query's Struct."""
    names = tuple(column.name for column in columns)
    if names != query.row.__struct_fields__:
        return [f"{names} instead of {query.row.__struct_fields__}"]
    hints = get_type_hints(query.row)
    return [f"{column.name} is {column.type.name}" for column in columns if not _fits(column, hints[column.name])]


def _fits(column: asyncpg.Attribute, hint: Any) -> bool:
    if column.type.kind == "array":
        return str(hint).startswith("list[")
    return PYTHON[column.type.name] in (get_args(hint) or (hint,))


async def test_no_index_is_searched_by_a_clock_that_moves_within_the_statement(pool: asyncpg.Pool) -> None:
    """PostgreSQL searches an index by values that a statement can't change: `due_at <= clock_timestamp()` is asked of
    each row, so that looking for what is due costs more the more waits. `statement_timestamp()` is one value."""
    leading = await pool.fetch(
        "SELECT DISTINCT indrelid::regclass::text AS name, attname AS first FROM pg_index JOIN pg_attribute"
        " ON attrelid = indrelid AND attnum = indkey[0]"
    )
    tables: dict[str, set[str]] = {}
    for row in leading:
        tables.setdefault(row["first"], set()).add(row["name"])
    faults = {
        name_of(query): column
        for query in QUERIES
        for column in filter(None, chain(*re.findall(BY_MOVING_CLOCK, query.sql)))
        if tables.get(column, set()) & set(re.findall(r"\w+", query.sql))
    }

    assert "verifications" in tables["due_at"]
    assert not faults


def test_every_query_of_every_file_is_declared_once() -> None:
    files = list(sql_files())
    written = Counter((path, name) for path in files for name in Queries(path).names)
    # Tests of this process may have declared queries of their own.
    queries = [one for one in REGISTRY if one.path in files]
    # A query with fragments for tables is declared once per table.
    declared = Counter((path, name) for path, name, _ in {(one.path, one.name, one.sql) for one in queries})

    assert declared.keys() == written.keys()
    assert len(queries) == declared.total()


def test_a_query_file_has_one_caller_beside_it() -> None:
    callers = Counter(module.parent / name for module in modules() for name in query_files_of(module))

    assert callers == Counter(sql_files())


def test_query_files_are_opened_from_beside_only() -> None:
    """So that the test above sees every caller there is."""
    elsewhere = [
        str(module.relative_to(ROOT))
        for module in modules()
        for name in query_files_of(module)
        if not (module.parent / name).is_file()
    ]

    assert not elsewhere


def modules() -> list[Path]:
    return [path for package in PACKAGES for folder in package.__path__ for path in Path(folder).rglob("*.py")]


@functools.cache
def query_files_of(module: Path) -> list[str]:
    """File names that a module opens by `Queries.beside(__file__, …)`."""
    found = []
    text = module.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if "Queries.beside" in text else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Queries.beside":
            names = [item.value for item in node.args[1:] if isinstance(item, ast.Constant)]
            found.append(str(names[0]) if names else "queries.sql")
    return found
