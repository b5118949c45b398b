"""The operator's holds on what one process has in hand: which deliveries they stop, and putting those aside."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from engine.delivery.holds import Hold, Holds
from engine.flows.sending import postpone
from engine.store.caches import Cache
from mta.outbound.prepare import Delivery


class Holding:
    """Asked when deliveries are taken, when they have been routed, and right before content is written."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._holds = Holds(pool)

    @property
    def cache(self) -> Cache[Any, Any]:
        """For the process's Stamps."""
        return self._holds.cache

    async def refresh(self) -> bool:
        """True when the operator has changed something since the last look. Raises DatabaseUnavailable."""
        return await self._holds.refresh()

    def of(self, delivery: Delivery, site: str | None = None) -> Hold | None:
        """The hold on a delivery as last heard of; `site` once it has been routed."""
        return self._holds.of(delivery.row, site)

    async def set_aside(self, deliveries: Sequence[Delivery], site: str | None = None) -> list[Delivery]:
        """Put those under a hold back into Postgres, record that on their waybills, and return them.

        Raises DatabaseUnavailable.
        """
        await self._holds.refresh()
        held = [(one, found) for one in deliveries if (found := self._holds.of(one.row, site)) is not None]
        if held:
            await postpone.set_aside(self._pool, [(one.row, found) for one, found in held])
        return [one for one, _ in held]
