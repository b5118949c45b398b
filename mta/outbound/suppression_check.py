"""Checks suppressions a second time: an address may have been suppressed after its message was accepted."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import asyncpg

from engine.base import clock
from engine.mail.address import canonical
from engine.sending.suppressions import store as suppressions
from engine.store.database_errors import DatabaseUnavailable
from mta.outbound.delivery import ActiveDelivery

BlockedRecipients = Mapping[tuple[UUID, str, UUID], str]  # (account, canonical address, message) -> reason


class SuppressionCheck:
    """Marks the suppressed recipients of deliveries."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def mark(self, deliveries: Sequence[ActiveDelivery]) -> None:
        """Note the reason at each suppressed recipient, in one query. Raises DatabaseUnavailable."""
        _suppress(deliveries, await self._found(deliveries))

    async def repeat(self, delivery: ActiveDelivery) -> None:
        """Mark a delivery that has waited long once more. Fails open while Postgres is away: the delivery was checked
        when it was loaded, and settling records a bounce all the same."""
        try:
            await self.mark([delivery])
        except DatabaseUnavailable:
            return
        delivery.loaded_at = clock.monotonic()

    async def refresh(self, waiting: Sequence[ActiveDelivery]) -> None:
        """Mark deliveries that wait once more, in one query; those that a connection takes meanwhile stay as they are.
        Fails open as `repeat` does."""
        began = clock.monotonic()
        try:
            found = await self._found(waiting)
        except DatabaseUnavailable:
            return
        still = [one for one in waiting if one.waits]
        _suppress(still, found)
        for one in still:
            one.loaded_at = began

    async def _found(self, deliveries: Sequence[ActiveDelivery]) -> BlockedRecipients:
        if not deliveries:
            return {}
        return await suppressions.blocking(
            self._pool,
            [
                (one.row.account_id, canonical(address), one.row.message_id)
                for one in deliveries
                for _, address in one.pairs
            ],
        )


def _suppress(deliveries: Sequence[ActiveDelivery], found: BlockedRecipients) -> None:
    for one in deliveries if found else ():
        for _, address in one.pairs:
            reason = found.get((one.row.account_id, canonical(address), one.row.message_id))
            if reason is not None:
                one.suppress(address, reason)
