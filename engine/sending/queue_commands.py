"""The operator's commands for the queue: look up the target, then change its rows.

The rows of a target can be many. Work on them ends after `rows_within_s`: a hold, and the end of one, then reach the
rest in the background; a flush or bounce is to be repeated.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import asyncpg
from msgspec import Struct, structs

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.delivery import queue_depths
from engine.delivery.holds import EVERYWHERE, HoldKind
from engine.delivery.mx_routes import opened_router
from engine.ledger.platform_log import OPERATOR
from engine.sending import queue_admin
from engine.sending.queue_admin import QueueTarget, queue_target
from engine.store.database_clock import DatabaseClock
from engine.store.resolver import Resolver


class QueueChange(Struct, frozen=True):
    """What a command did: `rows` deliveries were changed, None if there was no time for all (`complete` is False)."""

    kind: HoldKind
    target: str
    rows: int | None
    complete: bool
    until: str | None = None


class QueueCommands(Struct, frozen=True):
    """The commands in one process; `resolver` None: each command opens its own."""

    pool: asyncpg.Pool
    settings: Settings
    resolver: Resolver | None = None
    actor: str = OPERATOR
    rows_within_s: float | None = None

    async def suspend(self, kind: HoldKind, target: str, *, reason: str, for_s: float | None) -> QueueChange:
        """Hold a target's deliveries for `for_s` seconds, or until `resume`."""
        until = None if for_s is None else (await DatabaseClock.read(self.pool)).now() + timedelta(seconds=for_s)
        on = await self._found(kind, target)
        laid = await queue_admin.put_hold(self.pool, on, reason=reason, until=until, actor=self.actor)
        change = await self._bounded(on, queue_admin.hold_due_rows(self.pool, on, laid))
        return change if until is None else structs.replace(change, until=clock.iso(until))

    async def resume(self, kind: HoldKind, target: str, *, note: str | None) -> QueueChange:
        """End the hold on a target; raises 409 if there is none."""
        on = queue_target(kind, target)
        ended = await queue_admin.end_hold(self.pool, on, note=note, actor=self.actor)
        if ended is None:
            text = f"No hold exists on the {on.kind.value} {on.target}. The list of the queue shows all holds."
            raise Refusal(ErrorType.INVALID_STATE, text, state="not held")
        return await self._bounded(on, queue_admin.release_rows(self.pool, ended, note=note))

    async def flush(self, kind: HoldKind, target: str, *, note: str | None) -> QueueChange:
        """Make a target's pending deliveries due now."""
        on = await self._found(kind, target)
        return await self._bounded(on, queue_admin.flush(self.pool, on, note=note, actor=self.actor))

    async def bounce(self, kind: HoldKind, target: str, *, reason: str) -> QueueChange:
        """Fail a target's pending deliveries."""
        on = await self._found(kind, target)
        return await self._bounded(on, queue_admin.bounce(self.pool, on, reason=reason, actor=self.actor))

    async def _found(self, kind: HoldKind, target: str) -> QueueTarget:
        """Return the target; the domains of a site are found in DNS now."""
        if kind is not HoldKind.SITE or target == EVERYWHERE:
            return queue_target(kind, target)
        async with opened_router(self.settings, self.resolver) as router:
            sites = await queue_depths.domain_sites(self.pool, router)
        return queue_target(kind, target, [domain for domain, site in sites.items() if site == target.lower()])

    async def _bounded(self, on: QueueTarget, work: Awaitable[int]) -> QueueChange:
        try:
            async with asyncio.timeout(self.rows_within_s) as limit:
                return QueueChange(on.kind, on.target, await work, complete=True)
        except TimeoutError:
            if not limit.expired():
                raise
            return QueueChange(on.kind, on.target, None, complete=False)
