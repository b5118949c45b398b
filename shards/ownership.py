"""The shards and the lease of one process: its Member writes them, everything that delivers reads them. No I/O."""

import time
from collections.abc import Collection
from uuid import UUID

from engine.base import ids


class ShardOwnership:
    """The shards that one process owns of `total`, its member id, and until when its lease stands."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.member_id: UUID = ids.uuid7()
        self.shards: frozenset[int] = frozenset()
        self._held_until = 0.0  # monotonic

    @property
    def holds(self) -> bool:
        """True while the lease certainly stands. Read right before message content is written."""
        return time.monotonic() < self._held_until

    @property
    def fraction(self) -> float:
        """The owned part of all shards."""
        return len(self.shards) / self.total

    @property
    def held_until(self) -> float:
        """The monotonic time at which the process must stop starting anything."""
        return self._held_until

    def renew(self, until: float) -> None:
        """Let the lease stand until a monotonic time."""
        self._held_until = until

    def end_lease(self) -> None:
        """Start nothing from now on; the shards are still to be given up."""
        self._held_until = 0.0

    def add(self, shards: Collection[int]) -> None:
        """Own these shards too."""
        self.shards = self.shards.union(shards)

    def remove(self, shards: Collection[int]) -> None:
        """Own these shards no longer."""
        self.shards = self.shards.difference(shards)

    def lose(self) -> None:
        """Forget lease and shards: other processes own them by now. The next membership has a new id."""
        self.end_lease()
        self.shards = frozenset()
        self.member_id = ids.uuid7()
