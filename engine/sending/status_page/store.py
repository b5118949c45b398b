"""Read the figures of the status page; read and write its history and incidents."""

from engine.sending.status_page.types import ComponentDay, IncidentUpdate
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
RECENT_ATTEMPTS = _SQL.command("recent_attempts")
LATE_WEBHOOKS = _SQL.command("late_webhooks")
WRITE_QUARTERS = _SQL.command("write_quarters")
FORGET_QUARTERS = _SQL.command("forget_quarters")
DAYS = _SQL.rows("status_days", ComponentDay)
OPEN_INCIDENT = _SQL.command("open_incident")
FIND_OPEN_INCIDENT = _SQL.command("find_open_incident")
ADD_UPDATE = _SQL.command("add_update")
CLOSE_INCIDENT = _SQL.command("close_incident")
INCIDENTS = _SQL.rows("list_incidents", IncidentUpdate)
FORGET_INCIDENTS = _SQL.command("forget_incidents")
