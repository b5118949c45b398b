"""Read counts that are exact at the time of the statement; the cost does not grow with the account's age."""

from datetime import date
from uuid import UUID

from engine.sending.statistics import rules
from engine.sending.statistics.types import Counts, DayCounts, Days, UsedOn
from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)
_BY_DAY = _SQL.rows("counts_by_day", DayCounts)
_BY_DAY_OF_TAG = _SQL.rows("counts_by_day_of_tag", DayCounts)
_USED = _SQL.rows("used_by_day", UsedOn)


async def by_day(
    source: Source,
    account: UUID,
    wanted: Days,
    *,
    domains: list[str] | None = None,
    streams: list[str] | None = None,
    tag: str | None = None,
) -> list[Counts]:
    """Return the counts of messages created on each of the days, in order; those that match every given filter."""
    starts, end = [rules.quarter_of(day.starts_at) for day in wanted.days], rules.quarter_of(wanted.ends_at)
    if tag is None:
        rows = await _BY_DAY.fetch(source, account, starts, end, domains, streams)
    else:
        rows = await _BY_DAY_OF_TAG.fetch(source, account, starts, end, domains, streams, tag)
    found = [Counts() for _ in wanted.days]
    for row in rows:
        found[row.place - 1] = Counts(**{name: getattr(row, name) for name in Counts.__struct_fields__})
    return found


async def used(source: Source, account: UUID, days: list[date]) -> list[UsedOn]:
    """Return the usage of the account on each of these consecutive UTC days."""
    rows = await _USED.fetch(source, account, days[0], date.fromordinal(days[-1].toordinal() + 1))
    by_date = {row.day: row for row in rows}
    return [by_date.get(day) or UsedOn(day, 0, 0, 0, 0, 0) for day in days]
