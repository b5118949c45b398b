"""Read what needs a person, and the marks of people on notices."""

from engine.accounts.notices.types import MarkRow, NeededRow
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
FIND = _SQL.rows("find", NeededRow)
MARKS_OF = _SQL.rows("marks_of", MarkRow)
MARK = _SQL.command("mark")
