"""Holds: an operator's orders to keep mail in the queue, by domain, account, message or site.

A hold is a row in Postgres, so it survives every process. Each delivering process keeps all holds in memory and reloads
them when the stamp `holds` changes. Rows under a hold fall due at its end, or once a day for a check if it has no end.
"""

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.delivery.queue import Row
from engine.mail.address import BadAddress, domain_name
from engine.store.caches import Cache
from engine.store.database_clock import DatabaseClock
from engine.store.queries import Queries

KIND = "holds"  # the stamp's name
MAX_REASON = 200  # characters
EVERYWHERE = "*"  # the target that holds every site, and stops webhook posts and TLS reports too

_SQL = Queries.beside(__file__, "holds.sql")


class HoldKind(StrEnum):
    """The kind of a hold's target."""

    DOMAIN = "domain"  # the recipients' domain
    ACCOUNT = "account"
    MESSAGE = "message"
    SITE = "site"  # the site's name as attempts show it, or EVERYWHERE


class Hold(Struct, frozen=True):
    """A hold. `target` is a domain in A-labels, a public id, or a site's name; with `until` None it lasts until
    resumed.
    """

    id: UUID
    kind: str
    target: str
    reason: str
    created_at: datetime
    until: datetime | None


class _Moving(Struct, frozen=True):
    account_id: UUID


_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
# Stands for a move of the row's account to another cell: its rows stay as they are, and no process takes them.
MOVING = Hold(UUID(int=0), HoldKind.ACCOUNT.value, "", "the account is moving", _ALWAYS, None)

IN_FORCE = _SQL.rows("holds_in_force", Hold)
_ACCOUNT_MOVES = _SQL.rows("account_moves", _Moving)
ENDED = _SQL.rows("ended_holds", Hold)
PUT = _SQL.rows("put_hold", Hold)
END = _SQL.rows("end_hold", Hold)
FORGET = _SQL.command("forget_hold")
LOCK_HOLDS = _SQL.command("lock_holds")
ROWS_TO_HOLD = _SQL.command("rows_to_hold")
HOLD_ROWS = _SQL.command("hold_rows")
REPORT_DRAIN = _SQL.command("report_drain")


class Holds:
    """The holds as one process knows them, at most half a second old.

    Call `refresh` before and during work, and `of` for each delivery. `cache` belongs to the process's Stamps.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[str, tuple[tuple[Hold, ...], frozenset[UUID]]] = Cache(KIND, self._load)
        self._clock: DatabaseClock  # read with the holds; decides whether a hold has ended
        self._known: tuple[Hold, ...] = ()
        self.moving: frozenset[UUID] = frozenset()  # accounts that are on their way to or from another cell
        self._by_target: dict[tuple[str, str], Hold] = {}

    def __bool__(self) -> bool:
        return bool(self._known or self.moving)

    async def refresh(self) -> bool:
        """Load the holds if they changed; return True if they differ. Raises DatabaseUnavailable."""
        found, moving = await self.cache.get(KIND)
        if found is self._known and moving is self.moving:
            return False
        changed = found != self._known or moving != self.moving
        self._known, self.moving = found, moving
        self._by_target = {(hold.kind, hold.target): hold for hold in found}
        return changed

    def of(self, row: Row, site: str | None = None) -> Hold | None:
        """Return the hold that stops a delivery, or None. Pass `site` once the delivery has been routed."""
        if row.account_id in self.moving:
            return MOVING
        if not self._known:
            return None
        found = (
            self._in_force(HoldKind.SITE, EVERYWHERE)
            or self._in_force(HoldKind.DOMAIN, a_labels(row.domain))
            or self._in_force(HoldKind.ACCOUNT, ids.format_id(ids.Kind.ACCOUNT, row.account_id))
            or self._in_force(HoldKind.MESSAGE, ids.format_id(ids.Kind.MESSAGE, row.message_id))
        )
        if found is None and site is not None:
            found = self._in_force(HoldKind.SITE, site)
        return found

    def _in_force(self, kind: HoldKind, target: str) -> Hold | None:
        hold = self._by_target.get((kind.value, target))
        if hold is None or (hold.until is not None and hold.until <= self._clock.now()):
            return None
        return hold

    async def _load(self, _: str) -> tuple[tuple[Hold, ...], frozenset[UUID]]:
        self._clock = await DatabaseClock.read(self._pool)
        moving = frozenset(row.account_id for row in await _ACCOUNT_MOVES.fetch(self._pool))
        return tuple(await IN_FORCE.fetch(self._pool)), moving


@lru_cache(maxsize=10_000)
def a_labels(domain: str) -> str:
    """Return the domain in A-labels, the form that holds store; in lower case if it has none."""
    try:
        return domain_name(domain)
    except BadAddress:
        return domain.lower()
