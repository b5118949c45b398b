"""The operator's holds on what one process has in hand: which deliveries they stop, and putting those aside."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from engine.delivery.holds import Hold, Holds
from engine.flows import hold
from engine.store.caches import Cache
from mta.outbound.delivery import ActiveDelivery


class OperatorHolds:
    """Asked when deliveries are taken, when they have been routed, and right before content is written."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._holds = Holds(pool)

    @property
    def cache(self) -> Cache[Any, Any]:
        """For the process's Stamps."""
        return self._holds.cache

    async def refresh(self) -> bool:
        """True when the operator has changed something since the last look. Raises one of AWAY."""
        return await self._holds.refresh()

    def of(self, delivery: ActiveDelivery, site: str | None = None) -> Hold | None:
        """The hold on a delivery as last heard of; `site` once it has been routed."""
        return self._holds.of(delivery.row, site)

    async def set_aside(self, deliveries: Sequence[ActiveDelivery], site: str | None = None) -> list[ActiveDelivery]:
        """Put those under a hold back into Postgres, told on their waybills, and return them. Raises one of AWAY."""
        await self._holds.refresh()
        held = [(one, found) for one in deliveries if (found := self._holds.of(one.row, site)) is not None]
        if held:
            await hold.set_aside(self._pool, [(one.row, found) for one, found in held])
        return [one for one, _ in held]
