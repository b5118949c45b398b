"""Checks suppressions a second time: an address may have been suppressed after its message was accepted."""

from collections.abc import Sequence

import asyncpg

from engine.base import clock
from engine.mail.address import canonical
from engine.sending.suppressions import store as suppressions
from engine.store.database_errors import DatabaseUnavailable
from mta.outbound.delivery import ActiveDelivery


class SuppressionCheck:
    """Marks the suppressed recipients of deliveries."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def mark(self, deliveries: Sequence[ActiveDelivery]) -> None:
        """Note the reason at each suppressed recipient, in one query. Raises DatabaseUnavailable."""
        if not deliveries:
            return
        found = await suppressions.blocking(
            self._pool,
            [
                (one.row.account_id, canonical(address), one.row.message_id)
                for one in deliveries
                for _, address in one.pairs
            ],
        )
        for one in deliveries if found else ():
            for _, address in one.pairs:
                reason = found.get((one.row.account_id, canonical(address), one.row.message_id))
                if reason is not None:
                    one.suppress(address, reason)

    async def repeat(self, delivery: ActiveDelivery) -> None:
        """Mark a delivery that has waited long once more. Fails open while Postgres is away: the delivery was checked
        when it was loaded, and settling records a bounce all the same."""
        try:
            await self.mark([delivery])
        except DatabaseUnavailable:
            return
        delivery.loaded_at = clock.monotonic()
