"""Every named query holds against the migrated schema, fills its Struct, and has one caller."""

import ast
import importlib
import pkgutil
from collections import Counter
from datetime import date, datetime
from pathlib import Path
from types import NoneType
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
from engine.store.queries import REGISTRY, Queries, Query, RowQuery

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (engine, mta, shards, api, ops, loadtests)
NEED_LOCUST = ("loadtests.scenarios", "loadtests.users")  # only `ops loadtest` installs it; they have no SQL

for _package in PACKAGES:
    for _module in pkgutil.walk_packages(_package.__path__, _package.__name__ + "."):
        if not _module.name.endswith("__main__") and not _module.name.startswith(NEED_LOCUST):
            importlib.import_module(_module.name)

QUERIES = sorted(REGISTRY, key=lambda query: (str(query.path), query.name))
ROW_QUERIES = [query for query in QUERIES if isinstance(query, RowQuery)]

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


@pytest.mark.parametrize("query", QUERIES, ids=name_of)
async def test_every_query_can_be_prepared_on_the_migrated_database(query: Query, pool: asyncpg.Pool) -> None:
    async with pool.acquire() as connection:
        await connection.prepare(query.sql)


@pytest.mark.parametrize("query", ROW_QUERIES, ids=name_of)
async def test_columns_are_the_fields_of_the_struct_in_order(query: RowQuery[Any], pool: asyncpg.Pool) -> None:
    async with pool.acquire() as connection:
        columns = (await connection.prepare(query.sql)).get_attributes()

    assert tuple(column.name for column in columns) == query.row.__struct_fields__
    hints = get_type_hints(query.row)
    for column in columns:
        possible = [kind for kind in get_args(hints[column.name]) or (hints[column.name],) if kind is not NoneType]
        if column.type.kind == "array":
            assert str(hints[column.name]).startswith("list["), column.name
        else:
            assert PYTHON[column.type.name] in possible, f"{column.name} is {column.type.name}"


def test_every_query_of_every_file_is_declared_once() -> None:
    written = Counter((path, name) for path in sql_files() for name in Queries(path).names)
    declared = Counter((query.path, query.name) for query in REGISTRY)

    assert declared == written


@pytest.mark.parametrize("path", sql_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_query_file_has_one_caller_beside_it(path: Path) -> None:
    callers = [module for module in path.parent.glob("*.py") if path.name in query_files_of(module)]

    assert len(callers) == 1


def test_query_files_are_opened_from_beside_only() -> None:
    """So that the test above sees every caller there is."""
    elsewhere = [
        str(module.relative_to(ROOT))
        for package in PACKAGES
        for folder in package.__path__
        for module in Path(folder).rglob("*.py")
        for name in query_files_of(module)
        if not (module.parent / name).is_file()
    ]

    assert not elsewhere


def query_files_of(module: Path) -> list[str]:
    """File names that a module opens by `Queries.beside(__file__, …)`."""
    found = []
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Queries.beside":
            names = [item.value for item in node.args[1:] if isinstance(item, ast.Constant)]
            found.append(str(names[0]) if names else "queries.sql")
    return found
