"""Write the opt-outs of a list as files. Pure."""

from typing import Final

from engine.base import clock, csv_files
from engine.sending.unsubscribes.types import TopicOptOut

_HEADER: Final = ("address", "source", "createdAt")


def csv_header() -> bytes:
    """Return the header line of an export."""
    return csv_files.csv_lines([_HEADER])


def csv_row(row: TopicOptOut) -> list[str]:
    """Return an opt-out as the cells of an export, texts defused."""
    return [csv_files.defused(row.address), row.source.value, clock.iso(row.created_at)]
