"""Read contacts from CSV and newline-delimited JSON, and write them. Pure.

A CSV has the columns `email` (or `address`) and `name`, and one for each field: `plan` or `fields.plan` holds texts,
`fields.seats:number` numbers, `fields.trial:boolean` `true` or `false`. An empty cell gives no value. Columns that only
exports have, such as `id` and `consent`, are left out when a file is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from engine.audience.contacts.rules import MAX_FIELDS
from engine.audience.contacts.types import ContactRow
from engine.base import clock, csv_files, ids
from engine.base.errors import invalid

MAX_FILE_ROWS: Final = 10_000  # of one request
MAX_FIELD_COLUMNS: Final = 500
MAX_ROW_FIELDS: Final = 2 * MAX_FIELDS + 1  # read of one row; with so many the import refuses it
FIELD: Final = "fields."
EXPORTED: Final = (
    "id", "consent", "consentAt", "consentBy", "confirmed", "lists", "suppressed", "suppressionReason",
    "optedOutOf", "createdAt", "updatedAt",
)  # fmt: skip
_TYPES: Final = frozenset({"number", "boolean"})
_EMAIL: Final = ("email", "e-mail", "email address", "address")  # the first of them that a file has is the address


class FileFormat(StrEnum):
    """Name the format of a file of contacts."""

    CSV = "csv"
    NDJSON = "ndjson"


class FieldColumn(Struct, frozen=True):
    """A column of an export: a field and the type of its values, `string` where they differ in type."""

    name: str
    type: str

    @property
    def title(self) -> str:
        """Return the name of the column."""
        return f"{FIELD}{self.name}" + ("" if self.type == "string" else f":{self.type}")


def read_file(form: FileFormat, content: str) -> list[dict[str, Any]]:
    """Return the rows of a file as an import takes them; raise the 400 for a file that can't be read."""
    rows = _read_csv(content) if form is FileFormat.CSV else _read_ndjson(content)
    if not rows:
        raise invalid("content", "`content` has no rows. Add at least one.")
    return rows


def csv_header(columns: Sequence[FieldColumn]) -> bytes:
    """Return the header line of an export."""
    return csv_files.csv_lines([["email", "name", *EXPORTED, *(column.title for column in columns)]])


def csv_row(row: ContactRow, columns: Sequence[FieldColumn]) -> list[str]:
    """Return a contact as the cells of an export, texts defused."""
    fields = msgspec.json.decode(row.fields)
    texts = [row.email, row.name or ""]
    shown = [
        ids.format_id(ids.Kind.CONTACT, row.id),
        row.consent,
        clock.iso(row.consent_at),
        row.consent_by,
        _cell(row.confirmed),
        " ".join(ids.format_id(ids.Kind.LIST, one) for one in row.lists),
        _cell(row.suppression_reason is not None),
        row.suppression_reason or "",
        " ".join(ids.format_id(ids.Kind.LIST, one) for one in row.opted_out_of),
        clock.iso(row.created_at),
        clock.iso(row.updated_at),
    ]
    return [*map(csv_files.defused, texts), *shown, *(_cell(fields.get(column.name)) for column in columns)]


def _read_csv(content: str) -> list[dict[str, Any]]:
    rows = []
    for number, cells in csv_files.read_csv(content):
        _check_number(number)
        rows.append(_row_of(cells, number))
    return rows


def _row_of(cells: Mapping[str, str], number: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    address = _address_column(cells)
    for title, cell in cells.items():
        if title == address:
            row["email"] = cell.strip()
        elif title.lower() == "name":
            row["name"] = cell or None
        elif title not in EXPORTED and cell and len(fields) < MAX_ROW_FIELDS:
            name, kind = _field_of(title)
            fields[name] = _value(cell, kind, f"Row {number}, column {title[:80]!r}") if kind else cell
    return row | {"fields": fields}


def _address_column(titles: Iterable[str]) -> str | None:
    """Return the column of the address; an `address` beside an `email` is a field, often a postal address."""
    by_name = {title.lower(): title for title in titles}
    return next((by_name[name] for name in _EMAIL if name in by_name), None)


def _field_of(title: str) -> tuple[str, str]:
    """Return the field of a column, and its type, "" for texts."""
    name, _, kind = title.removeprefix(FIELD).rpartition(":")
    if name and kind in _TYPES:
        return name, kind
    return "_".join(title.removeprefix(FIELD).split()), ""


def _value(cell: str, kind: str, where: str) -> Any:
    wrong = invalid("content", f"{where}: {cell[:80]!r} is not a {kind}. Correct the cell, or empty it.")
    try:
        value = msgspec.json.decode(cell.strip().lower())
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise wrong from None
    if isinstance(value, bool) != (kind == "boolean") or not isinstance(value, int | float):
        raise wrong
    return value


def _read_ndjson(content: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for line_number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        _check_number(len(rows))
        rows.append({key: value for key, value in _object(line, line_number).items() if key not in EXPORTED})
    return rows


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise invalid("content", f"Line {number} isn't valid JSON. Write one object per line.") from None
    if not isinstance(found, dict):
        raise invalid("content", f"Line {number} isn't a JSON object. Write one object per line.")
    return found


def _check_number(number: int) -> None:
    if number >= MAX_FILE_ROWS:
        raise invalid("content", f"`content` has more than {MAX_FILE_ROWS} rows. Split the file.")


def _cell(value: object) -> str:
    """Return a value as a cell: numbers and booleans as JSON, texts defused."""
    if value is None:
        return ""
    return csv_files.defused(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
