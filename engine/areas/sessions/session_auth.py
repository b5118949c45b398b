"""The sessions as one process finds them: in Postgres at every request, so that an ended session is over everywhere.

A signed-in person makes few requests; one statement each buys that no process ever has to be told of a revocation.
"""

import asyncio
from collections.abc import Collection
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.areas.sessions import rules, store
from engine.areas.sessions.rules import Device
from engine.areas.sessions.store import SessionRow
from engine.base import clock
from engine.base.roles import Role
from engine.store.database_errors import DatabaseUnavailable

_log = structlog.get_logger("sessions")


class Person(Struct, frozen=True):
    """An authenticated session: who calls, for which account, and the token that their changes must carry."""

    session_id: UUID
    user_id: UUID
    account_id: UUID
    role: Role
    plan: str
    csrf: str
    row: SessionRow

    @property
    def suspended(self) -> bool:
        """Whether the account is suspended: its people may look, and take access away."""
        return self.row.account_status == "suspended"


class SessionAuth:
    """Sessions by their secret."""

    def __init__(self, pool: asyncpg.Pool, pepper: str) -> None:
        self._pool = pool
        self._pepper = pepper
        self._touches: set[asyncio.Task[None]] = set()

    async def person(self, secret: str | None, device: Device) -> Person | None:
        """Who has this secret in their cookie; None when nobody has, any more or ever."""
        if secret is None or not rules.well_formed(secret):
            return None
        at = clock.now()
        row = await store.FIND.first(self._pool, rules.digest_of(self._pepper, secret), at, at - rules.IDLE)
        if row is None:
            return None
        if at - row.used_at > rules.TOUCH_AFTER:
            task = asyncio.ensure_future(self._touch(row.id, device))
            self._touches.add(task)
            task.add_done_callback(self._touches.discard)
        return Person(
            session_id=row.id,
            user_id=row.user_id,
            account_id=row.account_id,
            role=Role(row.role),
            plan=row.plan,
            csrf=rules.csrf_token(self._pepper, secret),
            row=row,
        )

    async def living(self, sessions: Collection[UUID]) -> dict[UUID, UUID]:
        """Which of these sessions have not ended, and the account that each is at."""
        at = clock.now()
        rows = await store.LIVING.records(self._pool, list(sessions), at, at - rules.IDLE)
        return {row["id"]: row["account_id"] for row in rows}

    async def drain(self) -> None:
        """Wait for the uses that are being written."""
        await asyncio.gather(*self._touches)

    async def _touch(self, session: UUID, device: Device) -> None:
        try:
            await store.TOUCH.execute(self._pool, session, clock.now(), device.address)
        except DatabaseUnavailable as error:  # made up for by the next use
            _log.warning("use of a session not written", error=repr(error))
