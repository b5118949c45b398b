"""Named SQL: texts live in `.sql` files beside their only caller, rows become Structs.

A file holds queries of the form

    -- name: load_thing
    -- One sentence, and what $1, $2 are.
    SELECT …;

and fragments, `-- fragment: thing_columns`, which several queries include as `:thing_columns`. A statement with many
arguments names them instead of numbering them (engine.store.row_sets).

Every query declared through `Queries` is registered, so that a contract test can prepare each one on the
migrated database and compare its columns with the fields of the Struct it fills.
"""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from asyncpg import Connection, Pool, Record
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from engine.store.row_sets import Arrays, RowSet, WideStatement

Row = TypeVar("Row", bound=Struct)
Conn = Connection | PoolConnectionProxy  # may hold a transaction
Source = Conn | Pool  # for single statements

REPLAN_S: Final = 1.0  # the queue grows from nothing to thousands of rows in that time; planning `settle` costs 2 ms

_HEAD = re.compile(r"^-- (name|fragment): ([a-z][a-z0-9_]*)$", re.MULTILINE)

_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)

REGISTRY: list["Query"] = []


class Query:
    """A named statement without result rows of interest."""

    def __init__(self, path: Path, name: str, sql: str) -> None:
        self.path = path
        self.name = name
        self.sql = sql
        REGISTRY.append(self)

    async def execute(self, connection: Source, *arguments: object) -> str:
        """Run the statement; return the command tag."""
        tag: str = await connection.execute(self.sql, *arguments)
        return tag

    async def records(self, connection: Source, *arguments: object) -> list[Record]:
        """Run the statement; return raw records."""
        rows: list[Record] = await connection.fetch(self.sql, *arguments)
        return rows


class RowQuery(Query, Generic[Row]):
    """A named statement whose rows fill a Struct: columns in the order of its fields."""

    def __init__(self, path: Path, name: str, sql: str, row: type[Row]) -> None:
        super().__init__(path, name, sql)
        self.row = row

    async def fetch(self, connection: Source, *arguments: object) -> list[Row]:
        """Return all rows."""
        row = self.row
        return [row(*record) for record in await connection.fetch(self.sql, *arguments)]

    async def first(self, connection: Source, *arguments: object) -> Row | None:
        """Return the first row, or None."""
        record = await connection.fetchrow(self.sql, *arguments)
        return None if record is None else self.row(*record)


class WideQuery(Query):
    """A named statement with named parameters and row sets (engine.store.row_sets)."""

    def __init__(self, path: Path, name: str, statement: WideStatement) -> None:
        super().__init__(path, name, statement.sql)
        self._statement = statement

    async def run(self, connection: Source, *sets: Arrays, **single: object) -> list[Record]:
        """Run the statement with its row sets and single parameters; return raw records."""
        return await self.records(connection, *self._statement.arguments(sets, single))


class SessionFunction(Query):
    """A PL/pgSQL function that each session creates for itself (in the schema pg_temp) before it calls it first.

    It is part of the program, not of the database: changing it needs no migration, and two versions of the program
    work beside each other. The `.sql` file holds its body; arguments are as in a wide statement.

    Its statements are planned once for all arguments: in a new database PostgreSQL planned `accept` for each call,
    which took as long as the rest of it. A session that calls it discards its plans every second, because a plan made
    while a table was small may read the whole table when it is large.
    """

    def __init__(self, path: Path, name: str, statement: WideStatement, returns: str) -> None:
        types = ", ".join(statement.types)
        body = f"LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $function${statement.sql}$function$"
        super().__init__(path, name, f"CREATE OR REPLACE FUNCTION pg_temp.{name}({types}) RETURNS {returns} {body}")
        self._statement = statement
        places = ", ".join([f"${place}" for place in range(1, len(statement.types) + 1)])
        self._call = f"SELECT pg_temp.{name}({places})"
        self._replan_at: WeakKeyDictionary[Conn, float] = WeakKeyDictionary()  # of sessions that have it; monotonic

    async def prepare(self, connection: Conn) -> None:
        """Create the function if the session lacks it, and discard plans that are too old.

        Call it before a transaction, so that no rollback removes the function.
        """
        now, replan_at = time.monotonic(), self._replan_at.get(connection)
        if replan_at is not None and now < replan_at:
            return
        await connection.execute(self.sql if replan_at is None else "DISCARD PLANS")
        if replan_at is not None or not connection.is_in_transaction():  # else a rollback would remove it
            self._replan_at[connection] = now + REPLAN_S

    async def run(self, connection: Conn, *sets: Arrays, **single: object) -> object:
        """Call the function; return its result."""
        await self.prepare(connection)
        return await connection.fetchval(self._call, *self._statement.arguments(sets, single))


class Queries:
    """The statements and fragments of one `.sql` file."""

    def __init__(self, path: Path, **fragments: str) -> None:
        self.path = path
        self._texts, own = _split(path)
        self._fragments = own | fragments

    @classmethod
    def beside(cls, module_file: str, name: str = "queries.sql", **fragments: str) -> "Queries":
        """Load the file `name` from the folder of a module (`__file__`); it may include the given fragments too."""
        return cls(Path(module_file).parent / name, **fragments)

    def command(self, name: str) -> Query:
        """Return a statement without rows, or one whose rows are read raw."""
        return Query(self.path, name, self._text(name))

    def rows(self, name: str, row: type[Row]) -> RowQuery[Row]:
        """Return a statement whose rows fill `row`."""
        return RowQuery(self.path, name, self._text(name), row)

    def wide(self, name: str, *sets: RowSet[Any], **fragments: str) -> WideQuery:
        """Return a statement with named parameters: these row sets, and single values. It may include fragments of its
        file and those given here.
        """
        return WideQuery(self.path, name, WideStatement(self._texts[name], sets, self._fragments | fragments))

    def session_function(
        self,
        name: str,
        *sets: RowSet[Any],
        returns: str,
        types: Mapping[str, str],
        **fragments: str,
    ) -> SessionFunction:
        """Return a function with these row sets as parameters, and with single ones of these PostgreSQL types."""
        statement = WideStatement(self._texts[name], sets, self._fragments | fragments, types)
        return SessionFunction(self.path, name, statement, returns)

    def fragment(self, name: str) -> str:
        """Return the text of a fragment. Statements of the same file include it as `:name`."""
        return self._fragments[name]

    def _text(self, name: str) -> str:
        text = self._texts[name]
        for fragment, part in self._fragments.items():
            text = re.sub(rf"(?<![:\w]):{fragment}\b", part.replace("\\", r"\\"), text)
        return text

    @property
    def names(self) -> set[str]:
        """Return the names in the file, for the contract test that finds unused ones."""
        return set(self._texts)


def columns(rows: Sequence[Sequence[object]], width: int) -> tuple[list[object], ...]:
    """Transpose rows into `width` column arrays for `unnest`."""
    if not rows:
        return tuple([] for _ in range(width))
    return tuple(list(column) for column in zip(*rows, strict=True))


def _split(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the statements and the fragments of a file by name."""
    text = path.read_text("utf-8")
    heads = list(_HEAD.finditer(text))
    found: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        kind, name = head.groups()
        body = text[head.end() : following.start() if following else len(text)].strip()
        if not body.startswith("-- "):
            raise ValueError(f"{path.name}: {name} lacks a comment that says what it does")
        if name in found[kind]:
            raise ValueError(f"{path.name}: {name} is defined twice")
        found[kind][name] = body.rstrip(";") if kind == "name" else _COMMENT.sub("", body).strip()
    return found["name"], found["fragment"]
