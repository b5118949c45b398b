"""The shards and the lease of one mta process: `shards.member` writes them, the delivery stages read them. No I/O."""

import time
from collections.abc import Collection
from uuid import UUID

from engine.base import ids


class ShardOwnership:
    """The shards that one process owns of `total`, its member id, and the end of its lease."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.member_id: UUID = ids.uuid7()
        self.shards: frozenset[int] = frozenset()
        self._held_until = 0.0  # monotonic

    @property
    def holds(self) -> bool:
        """Return True while the lease is certainly valid. Checked right before message content is written."""
        return time.monotonic() < self._held_until

    @property
    def fraction(self) -> float:
        """Return the owned part of all shards, from 0 to 1."""
        return len(self.shards) / self.total

    @property
    def held_until(self) -> float:
        """Return the monotonic time from which the process must start no delivery."""
        return self._held_until

    def renew(self, until: float) -> None:
        """Extend the lease to a monotonic time."""
        self._held_until = until

    def end_lease(self) -> None:
        """End the lease at once, before the shards are released: no delivery starts any more."""
        self._held_until = 0.0

    def add(self, shards: Collection[int]) -> None:
        """Add shards to the owned ones."""
        self.shards = self.shards.union(shards)

    def remove(self, shards: Collection[int]) -> None:
        """Remove shards from the owned ones."""
        self.shards = self.shards.difference(shards)

    def lose(self) -> None:
        """Clear lease and shards, which other processes may own already, and choose the id of the next membership."""
        self.end_lease()
        self.shards = frozenset()
        self.member_id = ids.uuid7()
