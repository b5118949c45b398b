"""Rows of message streams."""

from datetime import datetime

from msgspec import Struct

from engine.store.queries import Queries

_SQL = Queries.beside(__file__)


class StreamRow(Struct):
    """One stream; its slug is its id."""

    slug: str
    name: str
    created_at: datetime


LIST = _SQL.rows("list_streams", StreamRow)
