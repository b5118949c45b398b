"""The operator's holds on the deliveries of one process: which deliveries they stop, and putting those aside."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from engine.delivery.holds import MOVING, REPORT_DRAIN, Hold, Holds
from engine.sending import postpone as hold
from engine.store.caches import Cache
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery


class OperatorHolds:
    """The holds as one process last read them; asked when deliveries are taken, once they are routed, and before
    content."""

    def __init__(self, pool: asyncpg.Pool, active: ActiveQueue) -> None:
        self._pool = pool
        self._active = active
        self._holds = Holds(pool)

    @property
    def cache(self) -> Cache[Any, Any]:
        """The cache of holds, for the process's Stamps."""
        return self._holds.cache

    async def refresh(self) -> bool:
        """Return True if the operator has changed a hold since the last call. Raises DatabaseUnavailable."""
        return await self._holds.refresh()

    def of(self, delivery: ActiveDelivery, site: str | None = None) -> Hold | None:
        """Return the hold on a delivery, as last read; `site` once it has been routed."""
        return self._holds.of(delivery.row, site)

    async def unheld(self, deliveries: list[ActiveDelivery], site: str | None = None) -> list[ActiveDelivery]:
        """Put the held deliveries back into Postgres, drop them from the active queue, and return the others that are
        still active. Raises DatabaseUnavailable."""
        held = await self._set_aside(deliveries, site)
        for one in held:
            self._active.drop(one)
        return [one for one in deliveries if self._active.has(one)] if held else deliveries

    async def report_drain(self, member: UUID) -> None:
        """Tell the move of an account how many of its deliveries this process still has. Raises DatabaseUnavailable."""
        if not (moving := sorted(self._holds.moving)):
            return
        in_hand = Counter(one.row.account_id for one in self._active if one.row.account_id in self._holds.moving)
        await REPORT_DRAIN.execute(self._pool, member, moving, [in_hand[account] for account in moving])

    async def _set_aside(self, deliveries: Sequence[ActiveDelivery], site: str | None) -> list[ActiveDelivery]:
        """Write the held deliveries back, noted on their waybills, and return them."""
        await self._holds.refresh()
        # A delivery past its `deliverBy` ends although it is held.
        waiting = [one for one in deliveries if not one.is_too_late or one.row.account_id in self._holds.moving]
        held = [(one, found) for one in waiting if (found := self._holds.of(one.row, site)) is not None]
        # The rows of a moving account stay as they are.
        rows = [(one.row, found) for one, found in held if found is not MOVING]
        if rows:
            await hold.set_aside(self._pool, rows)
        return [one for one, _ in held]
