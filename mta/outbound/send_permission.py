"""Decides whether a delivery may still be sent: asked right before its content is written. No I/O."""

from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.holds import OperatorHolds
from shards.ownership import ShardOwnership


class SendPermission:
    """Reads the lease, the active queue and the operator's holds of one process."""

    def __init__(self, ownership: ShardOwnership, active: ActiveQueue, holds: OperatorHolds) -> None:
        self._ownership = ownership
        self._active = active
        self._holds = holds

    @property
    def lease_holds(self) -> bool:
        """Return True while the lease is valid: without it no delivery of this process may begin."""
        return self._ownership.holds

    def granted(self, delivery: ActiveDelivery) -> bool:
        """Return True while the lease is valid and no hold applies to the delivery.

        After a fence the process may have a new lease, but the fenced delivery is no longer in the active queue.
        """
        return self._ownership.holds and self._active.has(delivery) and self._holds.of(delivery) is None
