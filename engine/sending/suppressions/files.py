"""Read suppressions, such as opt-outs, from CSV and newline-delimited JSON, and write them as CSV. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from engine.base import clock, csv_files
from engine.base.errors import invalid
from engine.sending.suppressions.types import SuppressionRow

MAX_FILE_ROWS: Final = 10_000  # of one request
_ADDRESS: Final = ("email", "e-mail", "email address", "address")  # the first of them that a file has
_HEADER: Final = ("address", "reason", "detail", "createdAt")


class SuppressionFileFormat(StrEnum):
    """Name the format of a file of suppressions."""

    CSV = "csv"
    NDJSON = "ndjson"


def read_file(form: SuppressionFileFormat, content: str) -> list[dict[str, Any]]:
    """Return the rows of a file with `address` and, where it has one, `reason`; other columns are left out.

    Raises the 400 for a file that can't be read, or that has no rows or too many.
    """
    rows = _read_csv(content) if form is SuppressionFileFormat.CSV else _read_ndjson(content)
    if not 1 <= len(rows) <= MAX_FILE_ROWS:
        raise invalid("content", f"`content` has {len(rows)} rows; it must have 1 to {MAX_FILE_ROWS}.")
    return rows


def csv_header() -> bytes:
    """Return the header line of an export."""
    return csv_files.csv_lines([_HEADER])


def csv_row(row: SuppressionRow) -> list[str]:
    """Return a suppression as the cells of an export, texts defused."""
    return [csv_files.defused(row.address), row.reason, csv_files.defused(row.detail or ""), clock.iso(row.created_at)]


def _read_csv(content: str) -> list[dict[str, Any]]:
    return [_row_of(cells) for _, cells in csv_files.read_csv(content)]


def _row_of(cells: Mapping[str, str]) -> dict[str, str]:
    row = {title.lower(): cell.strip() for title, cell in cells.items()}
    address = next((row[name] for name in _ADDRESS if name in row), None)
    return row if address is None else row | {"address": address}


def _read_ndjson(content: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise invalid("content", f"Line {number} isn't valid JSON. Write one object per line.") from None
        if not isinstance(row, dict):
            raise invalid("content", f"Line {number} isn't a JSON object. Write one object per line.")
        rows.append(row)
    return rows


def request_of(row: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return a row as the request that suppresses its address; `reason` stands for one that can't be imported."""
    own = row.get("reason")
    return {"address": row.get("address") or row.get("email") or "", "reason": own if own in _BY_HAND else reason}


_BY_HAND: Final = frozenset({"manual", "unsubscribe"})  # the service itself records bounces and complaints
