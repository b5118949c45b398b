"""Store the operator's site rules and the states of sites. Changed rules take effect in every process within a
second.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

import asyncpg
import msgspec
import structlog
from msgspec import Struct

from engine.delivery.sites import NamedRule, RuleBook, SiteRule, rule_from_json
from engine.store.caches import Cache, bump
from engine.store.queries import Conn, Queries, Source, columns

KIND = "sites"
_SQL = Queries.beside(__file__, "sites_store.sql")

_log = structlog.get_logger("sites")


class RuleRow(Struct, frozen=True):
    """A stored rule."""

    name: str
    rule: str
    why: str
    changed_at: datetime


class StateRow(Struct, frozen=True):
    """The state of a site as one process last reported it."""

    site: str
    process: str
    hosts: list[str]
    state: str
    updated_at: datetime


_RULES = _SQL.rows("read_rules", RuleRow)
_RULE = _SQL.rows("read_rule", RuleRow)
_WRITE = _SQL.command("write_rule")
_DELETE = _SQL.command("delete_rule")
_WRITE_STATES = _SQL.command("write_states")
_READ_STATES = _SQL.rows("read_states", StateRow)
_LIST_STATES = _SQL.rows("list_states", StateRow)
_FORGET_STATES = _SQL.command("forget_states")


class SiteRules:
    """The rule book of one process; `cache` belongs to the process's Stamps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[None, RuleBook] = Cache(KIND, self._load)
        self.latest = RuleBook()  # shipped rules until the first read, then the last rules read while Postgres is away

    async def book(self) -> RuleBook:
        """Return the rules in force. Raises DatabaseUnavailable; `latest` remains usable then."""
        self.latest = await self.cache.get(None)
        return self.latest

    async def _load(self, _: None) -> RuleBook:
        return RuleBook(await operators(self._pool))


async def operators(source: Source) -> list[NamedRule]:
    """Return the operator's rules; log and leave out a rule that this version cannot read."""
    found = []
    for row in await _RULES.fetch(source):
        try:
            found.append(NamedRule((row.name,), rule_from_json(row.rule), "operator", row.why))
        except msgspec.ValidationError as error:
            _log.error("site rule not readable", name=row.name, error=str(error))
    return found


async def rows(source: Source) -> list[RuleRow]:
    """Return the operator's rules as stored."""
    return await _RULES.fetch(source)


async def change(connection: Conn, name: str, fields: dict[str, object], why: str | None) -> SiteRule:
    """Set some fields of a name's rule (None removes a field) in the caller's transaction; return the whole rule.

    Raises msgspec.ValidationError if a value is out of bounds; then nothing is changed.
    """
    row = await _RULE.first(connection, name)
    known = {} if row is None else msgspec.json.decode(row.rule)
    wanted = {field: value for field, value in (known | fields).items() if value is not None}
    rule = msgspec.convert(wanted, SiteRule)
    reason = why if why is not None else "" if row is None else row.why
    await _WRITE.execute(connection, name, msgspec.json.encode(rule).decode(), reason)
    await bump(connection, KIND)
    return rule


async def reset(connection: Conn, name: str) -> bool:
    """Delete a name's rule in the caller's transaction; return False if there was none."""
    gone = await _DELETE.records(connection, name)
    if gone:
        await bump(connection, KIND)
    return bool(gone)


async def write_states(source: Source, process: str, states: Sequence[tuple[str, str, str]]) -> None:
    """Store this process's view of sites as (site, hosts joined by commas, JSON)."""
    await _WRITE_STATES.execute(source, process, *columns(states, 3))


async def states(source: Source, names: Collection[str], since: datetime) -> list[StateRow]:
    """Return the reported states of these sites, or of sites with these hosts."""
    return await _READ_STATES.fetch(source, list(names), since)


async def all_states(source: Source, since: datetime, limit: int) -> list[StateRow]:
    """Return the reported states of all sites, the latest first."""
    return await _LIST_STATES.fetch(source, since, limit)


async def forget_states(source: Source, before: datetime) -> None:
    """Delete states reported before a time."""
    await _FORGET_STATES.execute(source, before)
