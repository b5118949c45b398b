"""Site rules and site states in Postgres. A changed rule is in force everywhere within a second."""

from collections.abc import Collection, Sequence
from datetime import datetime

import asyncpg
import msgspec
import structlog
from msgspec import Struct

from engine.delivery.sites import NamedRule, Rule, RuleBook, rule_from_json
from engine.store.caches import Cache, bump
from engine.store.queries import Queries, Source, columns

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
    """What one process last saw of a site."""

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


class Rules:
    """The rule book as one process holds it; `cache` belongs to the process's Stamps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[None, RuleBook] = Cache(KIND, self._load)
        self.latest = RuleBook()  # until the first look; then what was read last, should Postgres be away

    async def book(self) -> RuleBook:
        """The rules in force. Raises DatabaseUnavailable; `latest` still stands then."""
        self.latest = await self.cache.get(None)
        return self.latest

    async def _load(self, _: None) -> RuleBook:
        return RuleBook(await operators(self._pool))


async def operators(source: Source) -> list[NamedRule]:
    """The operator's rules; one that this version can't read is left out and told."""
    found = []
    for row in await _RULES.fetch(source):
        try:
            found.append(NamedRule((row.name,), rule_from_json(row.rule), "operator", row.why))
        except msgspec.ValidationError as error:
            _log.error("site rule not understood", name=row.name, error=str(error))
    return found


async def rows(source: Source) -> list[RuleRow]:
    """The operator's rules as stored."""
    return await _RULES.fetch(source)


async def change(pool: asyncpg.Pool, name: str, fields: dict[str, object], why: str | None) -> Rule:
    """Set some fields of a name's rule (None takes a field back); gives the whole rule.

    Raises msgspec.ValidationError where a value is out of bounds; nothing is changed then.
    """
    async with pool.acquire() as connection, connection.transaction():
        row = await _RULE.first(connection, name)
        known = {} if row is None else msgspec.json.decode(row.rule)
        wanted = {field: value for field, value in (known | fields).items() if value is not None}
        rule = msgspec.convert(wanted, Rule)
        reason = why if why is not None else "" if row is None else row.why
        await _WRITE.execute(connection, name, msgspec.json.encode(rule).decode(), reason)
        await bump(connection, KIND)
    return rule


async def reset(pool: asyncpg.Pool, name: str) -> bool:
    """Forget a name's rule; False when there was none."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await _DELETE.records(connection, name)
        if gone:
            await bump(connection, KIND)
    return bool(gone)


async def write_states(source: Source, process: str, states: Sequence[tuple[str, str, str]]) -> None:
    """(Site, hosts joined by commas, JSON) as this process sees them now."""
    await _WRITE_STATES.execute(source, process, *columns(states, 3))


async def states(source: Source, names: Collection[str], since: datetime) -> list[StateRow]:
    """What the processes saw of these sites, or of sites with these hosts."""
    return await _READ_STATES.fetch(source, list(names), since)


async def all_states(source: Source, since: datetime, limit: int) -> list[StateRow]:
    """What the processes saw of any site."""
    return await _LIST_STATES.fetch(source, since, limit)


async def forget_states(source: Source, before: datetime) -> None:
    """Drop what nobody has seen since."""
    await _FORGET_STATES.execute(source, before)
