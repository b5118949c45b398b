"""Authenticate API keys from a cache of this process.

Every failure gets the same refusal in the same time: a missing, malformed, unknown, wrong, revoked or expired key, a
forbidden network, a suspended account. A digest is computed and compared in each case.
"""

import hmac
from datetime import datetime
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.plans import caps_of
from engine.base.secrets import Pepper, digest
from engine.people.api_keys import rules, store
from engine.people.api_keys.rules import KeyRestrictions
from engine.people.api_keys.store import ApiKeyRow
from engine.store import caches
from engine.store.caches import Cache
from engine.store.database_errors import AccountMoving, DatabaseUnavailable
from engine.store.queries import columns

MOVING = "moving"  # the status of an account that moves to another cell
TOUCH_S = 30  # interval of writing last uses
_NO_KEY = rules.FreshApiKey("0" * rules.ID_LENGTH, "0" * rules.SECRET_LENGTH)
_NO_DIGEST = bytes(32)

_log = structlog.get_logger("auth")


class Caller(Struct, frozen=True):
    """An authenticated API key."""

    account_id: UUID
    key_id: str
    scopes: frozenset[str]
    requests_per_second: int  # of its account
    id: UUID
    reach: KeyRestrictions | None = None  # restrictions in addition to the scopes
    origins: frozenset[str] | None = None  # of web pages that may read with this key

    @property
    def credential(self) -> str:
        """Return the name of the key among all credentials, for its rate limit and the notes of its writes."""
        return f"key:{self.key_id}"


class KnownKey(Struct, frozen=True):
    """A cached key with the parsed values of its row."""

    row: ApiKeyRow
    scopes: frozenset[str]
    reach: KeyRestrictions | None
    origins: frozenset[str] | None

    def good(self, at: datetime) -> bool:
        """Return True if the key authenticates at `at`."""
        row = self.row
        return (
            row.revoked_at is None
            and row.account_status == "active"
            and (row.expires_at is None or row.expires_at > at)
        )


class Keys:
    """Authenticates API keys from a cache of this process; gathers their last uses until they are written."""

    def __init__(self, pool: asyncpg.Pool, pepper: Pepper) -> None:
        self._pool = pool
        self._pepper = pepper
        self._used: dict[str, datetime] = {}
        self._outdated: dict[
            UUID, tuple[bytes, bytes]
        ] = {}  # by key: digests under the previous and the present pepper
        self.cache: Cache[str, KnownKey | None] = Cache("keys", self._find)

    async def caller(self, key: rules.FreshApiKey | None, address: str | None) -> Caller:
        """Return the caller for this key and network address; raise the uniform 401."""
        presented = key or _NO_KEY
        known = await self.cache.get(presented.key_id)
        stored = known.row.digest if known is not None else _NO_DIGEST
        computed = digest(self._pepper, presented.secret)
        matches = hmac.compare_digest(computed, stored)
        outdated = not matches and self._matches_previous(presented.secret, stored)
        matches = matches or outdated
        at = clock.now()
        if key is not None and known is not None and matches and known.row.account_status == MOVING:
            raise AccountMoving("the account of this key is moving to another cell")
        if key is None or known is None or not matches or not known.good(at):
            raise unauthorized()
        if known.reach is not None and not known.reach.admits(address):
            raise unauthorized()
        row = known.row
        self._used[row.key_id] = at
        if outdated:
            self._outdated[row.id] = (stored, computed)
        rate = caps_of(row.plan, row.agreed_caps).requests_per_second
        return Caller(row.account_id, row.key_id, known.scopes, rate, row.id, known.reach, known.origins)

    async def write_last_uses(self) -> None:
        """Store the last uses of keys, and the digests of those that were under the previous pepper; after a failure,
        the next use of a key stores it.
        """
        used, self._used = self._used, {}
        outdated, self._outdated = self._outdated, {}
        if not used:
            return
        try:
            await store.touch(self._pool, used)
            if outdated:
                await self._write_digests(outdated)
        except DatabaseUnavailable as error:
            _log.warning("last uses of keys not written", error=repr(error))

    def _matches_previous(self, secret: str, stored: bytes) -> bool:
        before = self._pepper.previous
        return before is not None and hmac.compare_digest(digest(before, secret), stored)

    async def _write_digests(self, outdated: dict[UUID, tuple[bytes, bytes]]) -> None:
        rows = [(key, stale, fresh) for key, (stale, fresh) in outdated.items()]
        async with caches.change(self._pool, "keys") as connection:
            await store.REDIGEST.execute(connection, *columns(rows, 3), self._pepper.fingerprint)

    async def _find(self, key_id: str) -> KnownKey | None:
        row = await store.FIND.first(self._pool, key_id)
        if row is None:
            return None
        reach = KeyRestrictions.of(row.domains, row.streams, row.networks, row.agent_recipients, row.agent_approval)
        origins = None if row.allowed_origins is None else frozenset(row.allowed_origins)
        return KnownKey(row, frozenset(row.scopes), reach, origins)


def unauthorized() -> Refusal:
    """Return the refusal for every failed authentication."""
    return Refusal(ErrorType.UNAUTHORIZED, "No valid API key. Send one as `Authorization: Bearer <key>`.")


def check_scope(caller: Caller, scopes: tuple[str, ...]) -> None:
    """Raise the 403 unless the key has one of the scopes."""
    if scopes and not caller.scopes.intersection(scopes):
        raise Refusal(
            ErrorType.FORBIDDEN, f"This API key lacks the scope {scopes[0]}. Use a key that has it.", scope=scopes[0]
        )
