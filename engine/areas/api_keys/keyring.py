"""The keys as one process knows them: one identical refusal for every cause, in the same time.

A missing, malformed, unknown, wrong, revoked or expired key, one used from outside its networks, and a suspended
account all end in the same sentence; a digest is computed and compared in each case.
"""

import hmac
from datetime import datetime
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.areas.api_keys import rules, store
from engine.areas.api_keys.rules import KeyRestrictions
from engine.areas.api_keys.store import KeyRow
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.secrets import digest
from engine.store.caches import Cache
from engine.store.database_errors import DatabaseUnavailable

TOUCH_S = 30  # how often last uses are written
_NOBODY = rules.NewKey("0" * rules.ID_LENGTH, "0" * rules.SECRET_LENGTH)
_NO_DIGEST = bytes(32)

_log = structlog.get_logger("auth")


class Caller(Struct, frozen=True):
    """An authenticated API key."""

    account_id: UUID
    key_id: str
    scopes: frozenset[str]
    plan: str
    id: UUID
    reach: KeyRestrictions | None = None  # what it is limited to beside its scopes


class Known(Struct, frozen=True):
    """A key as it is kept in memory, with what each request would have to make of its row."""

    row: KeyRow
    scopes: frozenset[str]
    reach: KeyRestrictions | None

    def good(self, at: datetime) -> bool:
        """Whether it authenticates at `at`."""
        row = self.row
        return (
            row.revoked_at is None
            and row.account_status == "active"
            and (row.expires_at is None or row.expires_at > at)
        )


class Keys:
    """The keys as one process knows them."""

    def __init__(self, pool: asyncpg.Pool, pepper: str) -> None:
        self._pool = pool
        self._pepper = pepper
        self._used: dict[str, datetime] = {}
        self.cache: Cache[str, Known | None] = Cache("keys", self._find)

    async def caller(self, key: rules.NewKey | None, address: str | None) -> Caller:
        """Who calls with this key from this network address; raises the uniform 401."""
        presented = key or _NOBODY
        known = await self.cache.get(presented.key_id)
        computed = digest(self._pepper, presented.secret)
        matches = hmac.compare_digest(computed, known.row.digest if known is not None else _NO_DIGEST)
        at = clock.now()
        if key is None or known is None or not matches or not known.good(at):
            raise unauthorized()
        if known.reach is not None and not known.reach.admits(address):
            raise unauthorized()
        row = known.row
        self._used[row.key_id] = at
        return Caller(row.account_id, row.key_id, known.scopes, row.plan, row.id, known.reach)

    async def write_last_uses(self) -> None:
        """Store when keys were last used; a failure is made up for by the next use."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await store.touch(self._pool, used)
        except DatabaseUnavailable as error:
            _log.warning("last uses not written", error=repr(error))

    async def _find(self, key_id: str) -> Known | None:
        row = await store.FIND.first(self._pool, key_id)
        if row is None:
            return None
        return Known(row, frozenset(row.scopes), KeyRestrictions.of(row.domains, row.streams, row.networks))


def unauthorized() -> Refusal:
    """The one answer to every failed authentication."""
    return Refusal(ErrorType.UNAUTHORIZED, "No valid API key. Send one as `Authorization: Bearer <key>`.")


def check_scope(caller: Caller, scopes: tuple[str, ...]) -> None:
    """One of the scopes must be on the key."""
    if scopes and not caller.scopes.intersection(scopes):
        raise Refusal(
            ErrorType.FORBIDDEN, f"This key lacks the scope {scopes[0]}. Use one that has it.", scope=scopes[0]
        )
