"""Read and write CSV (RFC 4180) that spreadsheets open safely. Pure."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.base.errors import invalid

# A cell that begins with one of these is a formula for spreadsheets (OWASP, "CSV Injection").
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_QUOTE: Final = "'"
MAX_CELL: Final = 128 * 1024  # characters
MAX_COLUMNS: Final = 1_000


def defused(cell: str) -> str:
    """Return a cell with an apostrophe before it if a spreadsheet would take it for a formula.

    A cell that looks like a defused one gets another apostrophe, so that `armed` restores every cell.
    """
    return _QUOTE + cell if cell.lstrip(_QUOTE).startswith(_FORMULA) else cell


def armed(cell: str) -> str:
    """Return the cell that was defused."""
    return cell[1:] if cell.startswith(_QUOTE) and cell.lstrip(_QUOTE).startswith(_FORMULA) else cell


def csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows as CSV in UTF-8; the caller has defused the cells."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def read_csv(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows after the header line, each with its number from 0, as cells by column; empty lines are left out.

    Cells are as they were before defusing. The separator is a comma, or a semicolon where the header has no comma.
    Raises the 400 for text without a header, a repeated column, too many columns, or broken quoting.
    """
    header_line, _, _ = text.partition("\n")
    separator = ";" if ";" in header_line and "," not in header_line else ","
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=separator, strict=True)
    csv.field_size_limit(MAX_CELL)
    try:
        header = [cell.strip() for cell in next(lines, [])]
        _check_header(header)
        number = 0
        for line in lines:
            if line:
                yield number, _row(header, line, number)
                number += 1
    except csv.Error as error:
        raise invalid("content", f"Line {lines.line_num} of the CSV is broken: {error}.") from None


def _check_header(header: Sequence[str]) -> None:
    if not any(header):
        raise invalid("content", "The CSV has no header line. Name the columns in its first line.")
    if len(header) > MAX_COLUMNS:
        raise invalid("content", f"The CSV has {len(header)} columns; the limit is {MAX_COLUMNS}. Remove some.")
    repeated = next((name for name in header if name and header.count(name) > 1), None)
    if repeated is not None:
        raise invalid("content", f"The CSV has two columns named {repeated[:80]!r}. Rename one.")


def _row(header: Sequence[str], line: Sequence[str], number: int) -> dict[str, str]:
    if len(line) > len(header):
        raise invalid("content", f"Row {number} of the CSV has {len(line)} cells; the header has {len(header)}.")
    return {name: armed(cell) for name, cell in zip(header, line, strict=False) if name}
