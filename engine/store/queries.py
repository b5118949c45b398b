"""Named SQL: texts live in `.sql` files beside their only caller, rows become Structs.

A file holds queries of the form

    -- name: load_thing
    -- One sentence, and what $1, $2 are.
    SELECT …;

Every query declared through `Queries` is registered, so that a contract test can prepare each one on the
migrated database and compare its columns with the fields of the Struct it fills.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from asyncpg import Connection, Pool, Record
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

Row = TypeVar("Row", bound=Struct)
Conn = Connection | PoolConnectionProxy  # may hold a transaction
Source = Conn | Pool  # for single statements

_HEAD = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)

REGISTRY: list["Query"] = []


class Query:
    """One named statement that returns nothing of interest."""

    def __init__(self, path: Path, name: str, sql: str) -> None:
        self.path = path
        self.name = name
        self.sql = sql
        REGISTRY.append(self)

    async def execute(self, connection: Source, *arguments: object) -> str:
        """Run it; returns the command tag."""
        tag: str = await connection.execute(self.sql, *arguments)
        return tag

    async def records(self, connection: Source, *arguments: object) -> list[Record]:
        """Run it; returns raw records in the columns' order."""
        rows: list[Record] = await connection.fetch(self.sql, *arguments)
        return rows


class RowQuery(Query, Generic[Row]):
    """One named statement whose rows fill a Struct: columns in the order of its fields."""

    def __init__(self, path: Path, name: str, sql: str, row: type[Row]) -> None:
        super().__init__(path, name, sql)
        self.row = row

    async def fetch(self, connection: Source, *arguments: object) -> list[Row]:
        """All rows."""
        row = self.row
        return [row(*record) for record in await connection.fetch(self.sql, *arguments)]

    async def first(self, connection: Source, *arguments: object) -> Row | None:
        """The first row, or None."""
        record = await connection.fetchrow(self.sql, *arguments)
        return None if record is None else self.row(*record)


class Queries:
    """The statements of one `.sql` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._texts = _split(path)

    @classmethod
    def beside(cls, module_file: str, name: str = "queries.sql") -> "Queries":
        """The file `name` in the folder of a module (`__file__`)."""
        return cls(Path(module_file).parent / name)

    def command(self, name: str) -> Query:
        """A statement without rows, or whose rows are read raw."""
        return Query(self.path, name, self._texts[name])

    def rows(self, name: str, row: type[Row]) -> RowQuery[Row]:
        """A statement whose rows fill `row`."""
        return RowQuery(self.path, name, self._texts[name], row)

    @property
    def names(self) -> set[str]:
        """Names in the file, for the contract test that finds unused ones."""
        return set(self._texts)


def columns(rows: Sequence[Sequence[object]], width: int) -> tuple[list[object], ...]:
    """Rows as `width` column arrays, for `unnest`."""
    if not rows:
        return tuple([] for _ in range(width))
    return tuple(list(column) for column in zip(*rows, strict=True))


def thinned(wide: tuple[list[object], ...], alike: frozenset[int]) -> tuple[list[object], ...]:
    """Columns without what `unnest`, which fills short ones up with NULL, or its caller can add: a value costs the
    client 0.3 µs and the server as much.

    A column of nothing but NULL goes. One of those at the places `alike`, which are never NULL, keeps its first value
    when all others are the same: the statement takes NULL there for that value.
    """
    return tuple([_thin(column, may_repeat=place in alike) for place, column in enumerate(wide)])


def _thin(column: list[object], *, may_repeat: bool) -> list[object]:
    if not column or (column[0] is not None and not may_repeat) or column.count(column[0]) != len(column):
        return column
    return [] if column[0] is None else column[:1]


def _split(path: Path) -> dict[str, str]:
    text = path.read_text("utf-8")
    heads = list(_HEAD.finditer(text))
    texts = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = text[head.end() : following.start() if following else len(text)].strip()
        if not body.startswith("-- "):
            raise ValueError(f"{path.name}: query {head[1]} lacks its sentence")
        if head[1] in texts:
            raise ValueError(f"{path.name}: query {head[1]} stands twice")
        texts[head[1]] = body.rstrip(";")
    return texts
