"""Read and write saved views."""

from engine.people.views.types import ViewRow
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_views", ViewRow)
READ = _SQL.rows("read_view", ViewRow)
INSERT = _SQL.command("insert_view")
CHANGE = _SQL.command("change_view")
DELETE = _SQL.command("delete_view")
