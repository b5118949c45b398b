"""Read what is due."""

from engine.sending.local_clock.types import DueWork
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
MAIL_IS_DUE = _SQL.command("mail_is_due")
DUE_WORK = _SQL.rows("due_work", DueWork)
