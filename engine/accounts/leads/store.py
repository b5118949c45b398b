"""Write enquiries."""

from engine.store.queries import Queries

_SQL = Queries.beside(__file__)

INSERT = _SQL.command("insert_lead")
