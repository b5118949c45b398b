"""Read and write alert rules, their measurements, and alert events."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import orjson
from msgspec import Struct, structs

from engine.accounts.alerts.types import AlertEvent, AlertKind, AlertRule, AlertRuleFields
from engine.store.queries import Conn, Queries, Source, columns
from engine.store.row_sets import Column, RowSet


class MeasuredRule(Struct, frozen=True):
    """The state of a rule after a measurement, as stored."""

    id: UUID
    firing_since: datetime | None
    below: int
    event_id: UUID | None
    notified: bool
    noticed_at: datetime | None
    last_value: float | None
    unknown_because: str | None


_MEASURED = RowSet(
    "rule",
    MeasuredRule,
    Column("id"),
    Column("firing_since"),
    Column("below", "smallint"),
    Column("event_id"),
    Column("notified"),
    Column("noticed_at"),
    Column("last_value", "float8"),
    Column("unknown_because"),
)
_FIRED = RowSet(
    "event",
    AlertEvent,
    Column("id"),
    Column("account_id"),
    Column("rule_id"),
    Column("kind"),
    Column("value", "float8"),
    Column("threshold", "float8"),
    Column("window_days", "smallint"),
    Column("detail"),
    Column("fired_at"),
)

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_rules", AlertRule)
READ = _SQL.rows("read_rule", AlertRule)
LOCK = _SQL.rows("lock_rule", AlertRule)
EVENTS = _SQL.rows("list_events", AlertEvent)
TAKE_DUE = _SQL.rows("take_due", AlertRule)
_EVENTS_OF = _SQL.rows("events_of_ids", AlertEvent)
_INSERT = _SQL.wide("insert_rule")
_CHANGE = _SQL.wide("change_rule")
_DELETE = _SQL.rows("delete_rule", AlertEvent)
_TESTED = _SQL.command("mark_tested")
_ANY_DUE = _SQL.command("any_due")
_SAVE = _SQL.wide("save_measured", _MEASURED)
_INSERT_EVENTS = _SQL.wide("insert_events", _FIRED)
_SET_CHANNELS = _SQL.command("set_channels")
_END_EVENTS = _SQL.command("end_events")


async def insert(
    connection: Conn, account: UUID, rule: UUID, kind: AlertKind, fields: AlertRuleFields, at: datetime
) -> None:
    """Insert a rule."""
    await _INSERT.run(connection, rule=rule, account=account, kind=kind.value, at=at, **structs.asdict(fields))


async def change(connection: Conn, rule: UUID, fields: AlertRuleFields) -> None:
    """Replace the fields of a rule; its state stays."""
    await _CHANGE.run(connection, rule=rule, **structs.asdict(fields))


async def delete(connection: Conn, rule: UUID, at: datetime) -> AlertEvent | None:
    """Delete a rule; return the event of its firing, which ends at `at`, None if it did not fire."""
    return await _DELETE.first(connection, rule, at)


async def mark_tested(connection: Conn, rule: UUID, at: datetime, after: datetime) -> bool:
    """Record a test of a rule; return False if there was one after `after`."""
    return bool(await _TESTED.records(connection, rule, at, after))


async def any_due(source: Source, before: datetime) -> bool:
    """Return True if a rule was not measured after `before`."""
    return bool(await _ANY_DUE.records(source, before))


async def save_measured(connection: Conn, measured: Iterable[MeasuredRule], at: datetime) -> None:
    """Store the measurement of rules that the caller has locked."""
    await _SAVE.run(connection, _MEASURED.of(measured), at=at)


async def insert_events(connection: Conn, fired: Sequence[AlertEvent]) -> None:
    """Insert alert events without channels."""
    if fired:
        await _INSERT_EVENTS.run(connection, _FIRED.of(fired))


async def events_of(source: Source, events: Collection[UUID]) -> dict[UUID, AlertEvent]:
    """Return alert events by id."""
    return {one.id: one for one in await _EVENTS_OF.fetch(source, list(events))} if events else {}


async def set_channels(connection: Conn, channels: Mapping[UUID, Sequence[str]]) -> None:
    """Record on which channels the notices of events went out."""
    rows = [(event, orjson.dumps(list(names)).decode()) for event, names in channels.items()]
    if rows:
        await _SET_CHANNELS.execute(connection, *columns(rows, 2))


async def end_events(connection: Conn, events: Sequence[UUID], at: datetime) -> None:
    """End alert events."""
    if events:
        await _END_EVENTS.execute(connection, list(events), at)
