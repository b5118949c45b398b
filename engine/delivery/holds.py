"""What the operator holds back: holds on a domain, an account, a message or a site, known to every delivering process.

A hold is a row in Postgres, so it outlives every process; each process has all of them in memory and hears of a
change by the stamp `holds`. Rows under a hold fall due late: at the hold's end, or once a day to be looked at again.
"""

from datetime import datetime
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

KIND = "holds"  # of the stamp
MAX_REASON = 200  # characters
EVERYWHERE = "*"  # the target of a hold on every site there is: nothing leaves, webhook posts and TLS reports included
WAITING = "operator_hold"  # the row's reason to wait, and that of its `queued` event

_SQL = Queries.beside(__file__, "holds.sql")


class HoldKind(StrEnum):
    """What a hold is laid on."""

    DOMAIN = "domain"  # of recipients
    ACCOUNT = "account"
    MESSAGE = "message"
    SITE = "site"  # the name that deliveries give a set of mail servers, or EVERYWHERE


class Hold(Struct, frozen=True):
    """One hold. `target` is a domain in A-labels, a public id, or a site's name; without `until` it stands until it
    is resumed."""

    id: UUID
    kind: str
    target: str
    reason: str
    created_at: datetime
    until: datetime | None


STANDING = _SQL.rows("standing_holds", Hold)
ENDED = _SQL.rows("ended_holds", Hold)
PUT = _SQL.rows("put_hold", Hold)
END = _SQL.rows("end_hold", Hold)
FORGET = _SQL.command("forget_hold")
STILL_STANDING = _SQL.command("still_standing")
ROWS_TO_HOLD = _SQL.command("rows_to_hold")
HOLD_ROWS = _SQL.command("hold_rows")


class Holds:
    """The holds as one process knows them: `refresh` before and while it works, `of` for each delivery.

    `cache` is for the process's Stamps; what changes is known within half a second.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[str, tuple[Hold, ...]] = Cache(KIND, self._load)
        self._clock: DatabaseClock  # of the last look at the holds, by which their ends are judged
        self._known: tuple[Hold, ...] = ()
        self._by_target: dict[tuple[str, str], Hold] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    async def refresh(self) -> bool:
        """Take over what the database says; True when that is something new. Raises DatabaseUnavailable."""
        found = await self.cache.get(KIND)
        if found is self._known:
            return False
        changed = found != self._known
        self._known = found
        self._by_target = {(hold.kind, hold.target): hold for hold in found}
        return changed

    def of(self, row: Row, site: str | None = None) -> Hold | None:
        """The hold that keeps a delivery back, None where none does. `site` once the delivery has been routed."""
        if not self._known:
            return None
        found = (
            self._standing(HoldKind.SITE, EVERYWHERE)
            or self._standing(HoldKind.DOMAIN, a_labels(row.domain))
            or self._standing(HoldKind.ACCOUNT, ids.format_id(ids.Kind.ACCOUNT, row.account_id))
            or self._standing(HoldKind.MESSAGE, ids.format_id(ids.Kind.MESSAGE, row.message_id))
        )
        if found is None and site is not None:
            found = self._standing(HoldKind.SITE, site)
        return found

    def _standing(self, kind: HoldKind, target: str) -> Hold | None:
        hold = self._by_target.get((kind.value, target))
        if hold is None or (hold.until is not None and hold.until <= self._clock.now()):
            return None
        return hold

    async def _load(self, _: str) -> tuple[Hold, ...]:
        self._clock = await DatabaseClock.read(self._pool)
        return tuple(await STANDING.fetch(self._pool))


@lru_cache(maxsize=10_000)
def a_labels(domain: str) -> str:
    """The domain as holds name it; one that can't be said in A-labels stays as it is."""
    try:
        return domain_name(domain)
    except BadAddress:
        return domain.lower()
