"""Authenticate sessions by one query per request, so that an ended session ends in all processes at once.

People make few requests, so no cache is needed and no process has to be notified.
"""

import asyncio
from collections.abc import Collection
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.base import clock
from engine.base.plans import caps_of
from engine.base.roles import Role
from engine.base.secrets import Pepper
from engine.people.sessions import rules, store
from engine.people.sessions.rules import Device
from engine.people.sessions.store import SessionRow
from engine.store.database_errors import AccountMoving, DatabaseUnavailable

_log = structlog.get_logger("sessions")


class Person(Struct, frozen=True):
    """An authenticated session: person, account, role, request rate and CSRF token."""

    session_id: UUID
    user_id: UUID
    account_id: UUID
    role: Role
    requests_per_second: int  # of its account
    csrf_tokens: tuple[str, ...]  # the present one first
    row: SessionRow

    @property
    def csrf(self) -> str:
        """Return the CSRF token to give out; pages that were loaded before a change of the pepper have another one."""
        return self.csrf_tokens[0]

    @property
    def suspended(self) -> bool:
        """Return True if the account is suspended; its people may then only read and revoke access."""
        return self.row.account_status == "suspended"

    @property
    def used_second_factor(self) -> bool:
        """Return True if the session was opened with a passkey, or with a code beside a password or identity."""
        return self.row.method == "passkey" or "+" in self.row.method


class SessionAuth:
    """Authenticate sessions; hold the pending writes of last uses."""

    def __init__(self, pool: asyncpg.Pool, pepper: Pepper) -> None:
        self._pool = pool
        self._pepper = pepper
        self._touches: set[asyncio.Task[None]] = set()

    async def person(self, secret: str | None, device: Device) -> Person | None:
        """Return the person with this secret in their cookie, or None if the session does not exist or has ended."""
        if secret is None or not rules.well_formed(secret):
            return None
        at = clock.now()
        digests = rules.digests_of(self._pepper, secret)
        row = await store.FIND.first(self._pool, digests, at, at - rules.IDLE)
        if row is None:
            return None
        if row.account_status == "moving":
            raise AccountMoving("the account of this session is moving to another cell")
        if row.is_outdated or at - row.used_at > rules.TOUCH_AFTER:
            task = asyncio.ensure_future(self._touch(row, digests, device))
            self._touches.add(task)
            task.add_done_callback(self._touches.discard)
        return Person(
            session_id=row.id,
            user_id=row.user_id,
            account_id=row.account_id,
            role=Role(row.role),
            requests_per_second=caps_of(row.plan, row.agreed_caps).requests_per_second,
            csrf_tokens=tuple(rules.csrf_token(one, secret) for one in self._pepper.accepted),
            row=row,
        )

    async def living(self, sessions: Collection[UUID]) -> dict[UUID, UUID]:
        """Return those sessions that have not ended, with their accounts."""
        at = clock.now()
        rows = await store.LIVING.records(self._pool, list(sessions), at, at - rules.IDLE)
        return {row["id"]: row["account_id"] for row in rows}

    async def drain(self) -> None:
        """Wait for pending writes of last uses."""
        await asyncio.gather(*self._touches)

    async def _touch(self, row: SessionRow, digests: list[bytes], device: Device) -> None:
        """Record the use, and put the digest under the present pepper in place of one under the previous pepper."""
        try:
            await store.TOUCH.execute(self._pool, row.id, clock.now(), device.address)
            if row.is_outdated:
                await store.REDIGEST.execute(self._pool, row.id, *digests, self._pepper.fingerprint)
        except DatabaseUnavailable as error:  # the next use writes it
            _log.warning("last use of session not written", error=repr(error))
