"""Pass many rows as array parameters of one statement, with generated positions.

A wide statement names its parameters. `:low` is a single value. `:message`, if the statement has a RowSet of that name,
is a relation with the set's columns, used as `FROM :message`; `:message.names` is the list of its columns for an
INSERT, and `:message.status` the array of one column. RowSet and its columns define once the content, type and source
of each parameter, so no position is written by hand. The name of a fragment stands for the fragment's text.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from msgspec import Struct

from engine.base.sql_types import SqlType

Item = TypeVar("Item")

# PostgreSQL types of unambiguous annotations. Integers have several widths, so their columns name one.
_TYPES: Final[dict[object, str]] = {
    UUID: "uuid", str: "text", bytes: "bytea", bool: "boolean", datetime: "timestamptz", date: "date",
    timedelta: "interval",
}  # fmt: skip

_PARAMETER = re.compile(r"(?<![:\w]):([a-z][a-z0-9_]*)(?:\.([a-z_]+)\b)?")


class Column(Struct, frozen=True):
    """A column of a row set.

    `value` computes it from a row; without one it is the row's attribute `name`. `type` is the PostgreSQL type; without
    one it follows from the annotation of that attribute. `repeats` marks a column that is never NULL and mostly has one
    value in a batch, which is then sent once.
    """

    name: str
    type: str | None = None
    value: Callable[[Any], object] | None = None
    repeats: bool = False


def columns_of(shape: type[Struct], path: str, *, repeated: Collection[str]) -> list[Column]:
    """Return a column for each field of `shape`, which the rows hold as their attribute `path`."""
    return [
        Column(f'"{name}"', _type_of(shape, name), attrgetter(f"{path}.{name}"), repeats=name in repeated)
        for name in shape.__struct_fields__
    ]


def selected(row: type[Struct], table: str) -> str:
    """Return the columns of `table` that fill `row`, for a SELECT; a network address is read as text."""
    inet = {name for name in row.__struct_fields__ if _declared(_annotation(row, name)) == "inet"}
    columns = [(name, f'{table}."{name}"') for name in row.__struct_fields__]
    return ", ".join([f'host({column}) AS "{name}"' if name in inet else column for name, column in columns])


class Arrays(Struct, frozen=True):
    """The rows of one execution, column by column."""

    name: str
    columns: tuple[list[object], ...]


class RowSet(Generic[Item]):
    """A group of array parameters that hold rows made of `Item`s, declared once per statement or shared by several."""

    def __init__(self, name: str, item: type[Item], *columns: Column) -> None:
        self.name = name
        self.names = tuple(column.name for column in columns)
        self.types = tuple(column.type or _type_of(item, column.name) for column in columns)
        self._repeats = tuple(column.repeats for column in columns)
        if all(self._repeats):
            raise ValueError(f"row set {name}: one column must not repeat, because it determines the number of rows")
        self._values = tuple(column.value or attrgetter(column.name) for column in columns)

    def of(self, rows: Iterable[Item]) -> Arrays:
        """Return the arguments for these rows."""
        rows = rows if isinstance(rows, list) else list(rows)
        columns = zip(self._values, self._repeats, strict=True)
        return Arrays(self.name, tuple([_shortened(list(map(value, rows)), repeats) for value, repeats in columns]))

    def relation(self, first: int) -> str:
        """Return the SQL of a relation whose arrays are the parameters from $`first` on."""
        arrays = [f"${first + place}::{kind}[]" for place, kind in enumerate(self.types)]
        unnested = f"unnest({', '.join(arrays)})"
        if not any(self._repeats):
            return f"{unnested} AS {self.name} ({', '.join(self.names)})"
        chosen = [
            f"coalesce(r.{name}, ({array})[1]) AS {name}" if repeats else f"r.{name}"
            for name, array, repeats in zip(self.names, arrays, self._repeats, strict=True)
        ]
        rows = f"SELECT {', '.join(chosen)} FROM {unnested} AS r ({', '.join(self.names)})"  # noqa: S608 - no values
        return f"({rows}) AS {self.name}"


class WideStatement:
    """The text of a wide statement with the order of its parameters. `types` names the PostgreSQL types of single
    parameters, where the statement needs them.
    """

    def __init__(
        self,
        text: str,
        sets: Collection[RowSet[Any]],
        fragments: Mapping[str, str],
        types: Mapping[str, str] | None = None,
    ) -> None:
        self._sets = {one.name: one for one in sets}
        self._fragments = fragments
        self._single_types = types or {}
        self.types: list[str] = []  # of the parameters, in the order of their positions
        self._first: dict[str, int] = {}  # the first position of each parameter, in ascending order
        self._listed: set[str] = set()  # row sets of which only the names of the columns occur
        self._next = 1
        self.sql = self._expanded(text)
        unused = self._sets.keys() - self._first.keys() - self._listed
        if unused:
            raise ValueError(f"the statement uses no row set named {', '.join(sorted(unused))}")

    def arguments(self, sets: Sequence[Arrays], single: Mapping[str, object]) -> list[object]:
        """Return all arguments in the order of their positions. Raises TypeError unless each is given once."""
        given: dict[str, Iterable[object]] = {one.name: one.columns for one in sets}
        given.update({name: (value,) for name, value in single.items()})
        if len(given) != len(sets) + len(single) or given.keys() != self._first.keys():
            raise TypeError(f"wanted {sorted(self._first)}, got {sorted([one.name for one in sets] + list(single))}")
        return [value for name in self._first for value in given[name]]

    def _expanded(self, text: str) -> str:
        return _PARAMETER.sub(self._replaced, text)

    def _replaced(self, found: re.Match[str]) -> str:
        name = found[1]
        if name in self._fragments:
            return self._expanded(self._fragments[name])
        rows = self._sets.get(name)
        if found[2] and rows is None:
            raise ValueError(f"`:{name}.{found[2]}`: the statement has no row set {name}")
        if rows is not None and found[2] == "names":
            self._listed.add(name)
            return ", ".join(rows.names)
        if name not in self._first:
            self._first[name] = self._next
            types = [self._single_types.get(name, "")] if rows is None else [f"{kind}[]" for kind in rows.types]
            self.types += types
            self._next += len(types)
        if rows is None:
            return f"${self._first[name]}"
        if found[2]:
            if found[2] not in rows.names:
                raise ValueError(f"`:{name}.{found[2]}`: the row set {name} has no column {found[2]}")
            return f"${self._first[name] + rows.names.index(found[2])}"
        return rows.relation(self._first[name])


def _shortened(column: list[object], repeats: bool) -> list[object]:  # noqa: FBT001 - called for every column
    """Shorten a column whose values the statement can add: each value costs client and server 0.3 µs.

    `unnest` pads short arrays with NULL, so a column of NULLs is sent empty; a column that `repeats` is sent with one
    value.
    """
    if not column or (column[0] is not None and not repeats) or column.count(column[0]) != len(column):
        return column
    return [] if column[0] is None else column[:1]


def _type_of(item: type[Any], name: str) -> str:
    annotation = _annotation(item, name)
    declared = _declared(annotation)
    if declared is not None:
        return declared
    try:
        return _TYPES[annotation]
    except KeyError:
        raise TypeError(f"column {name}: give its PostgreSQL type, which does not follow from {annotation!r}") from None


def _annotation(item: type[Any], name: str) -> Any:
    """Return the annotation of a field, without None."""
    annotation = get_type_hints(item, include_extras=True).get(name)
    if get_origin(annotation) in (Union, UnionType):
        [annotation] = [kind for kind in get_args(annotation) if kind is not NoneType]
    return annotation


def _declared(annotation: Any) -> str | None:
    """Return the PostgreSQL type that an annotation names, if it does (engine.base.sql_types)."""
    return next((one.name for one in getattr(annotation, "__metadata__", ()) if isinstance(one, SqlType)), None)
