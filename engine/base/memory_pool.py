"""Share memory for arriving content fairly between clients.

The API reads request bodies, the relay reads messages, and both compose mail in memory. A pool bounds the memory that a
process holds for all of them, for one owner (an account, or a network without credentials) and for one part of an owner
(an API key). When the pool is full, the owner that holds the most loses content that is still arriving, until every
owner has its share.
"""

from collections.abc import Callable, Hashable
from typing import Final

from engine.base.errors import ErrorType, Refusal

RETRY_AFTER_S: Final = 2


class MemoryPool:
    """The number of bytes that a process holds for each owner; lives as long as the process.

    `owner_limit` and `part_limit` bound one owner and one part of an owner, whether or not the pool is full.
    """

    def __init__(self, total: int, *, owner_limit: int, part_limit: int) -> None:
        self.total = total
        self.held = 0
        self._owner_limit = owner_limit
        self._part_limit = part_limit
        self._by_owner: dict[Hashable, int] = {}
        self._by_part: dict[Hashable, int] = {}
        self._revocable: dict[Hashable, set[Reservation]] = {}

    @classmethod
    def for_accounts(cls, total: int, *, largest: int) -> "MemoryPool":
        """Return a pool that gives one account at most three quarters and one API key at most half of it.

        Each of them may always hold one body of the `largest` size.
        """
        minimum = min(total, largest)
        return cls(total, owner_limit=max(minimum, total * 3 // 4), part_limit=max(minimum, total // 2))

    def open(self, owner: Hashable, part: Hashable = None) -> "Reservation":
        """Return an empty reservation for `part` of `owner`; without a part, for the owner alone."""
        return Reservation(self, owner, owner if part is None else part)

    def watch(self, reservation: "Reservation") -> None:
        """Allow the pool to revoke this reservation when an owner that holds less needs the memory."""
        self._revocable.setdefault(reservation.owner, set()).add(reservation)

    def take(self, reservation: "Reservation", size_bytes: int) -> None:
        """Reserve more bytes. Raises 429 beyond the share of the owner or part, 503 when the pool is full."""
        if not size_bytes:
            return
        owner = self._by_owner.get(reservation.owner, 0) + size_bytes
        part = self._by_part.get(reservation.part, 0) + size_bytes
        if owner > self._owner_limit or part > self._part_limit:
            raise _share_exceeded(self._owner_limit if owner > self._owner_limit else self._part_limit)
        if self.held + size_bytes > self.total and not self._make_room(size_bytes, owner):
            raise full()
        self._by_owner[reservation.owner] = owner
        self._by_part[reservation.part] = part
        self.held += size_bytes
        reservation.octets += size_bytes

    def release(self, reservation: "Reservation") -> None:
        """Release all bytes of a reservation."""
        if not reservation.octets:
            return
        _subtract(self._by_owner, reservation.owner, reservation.octets)
        _subtract(self._by_part, reservation.part, reservation.octets)
        self.held -= reservation.octets
        reservation.octets = 0

    def unwatch(self, reservation: "Reservation") -> None:
        """Stop allowing the pool to revoke this reservation."""
        revocable = self._revocable.get(reservation.owner)
        if revocable is not None:
            revocable.discard(reservation)
            if not revocable:
                del self._revocable[reservation.owner]

    def _make_room(self, size_bytes: int, own: int) -> bool:
        """Revoke reservations of owners that hold more than `own` bytes; return True when `size_bytes` fit."""
        while self.held + size_bytes > self.total:
            victim = self._victim(own)
            if victim is None:
                return False
            victim.revoke()
        return True

    def _victim(self, own: int) -> "Reservation | None":
        """Return the largest arriving content of the owner that holds the most, if that is more than `own`."""
        larger = [owner for owner in self._revocable if self._by_owner.get(owner, 0) > own]
        for owner in sorted(larger, key=self._by_owner.__getitem__, reverse=True):
            largest = max(self._revocable[owner], key=lambda reservation: reservation.octets)
            if largest.octets:
                return largest
        return None


class Reservation:
    """The memory that one request or message holds in a pool, from its first byte until it is answered."""

    __slots__ = ("_on_revoke", "_pool", "octets", "owner", "part", "revoked")

    def __init__(self, pool: MemoryPool, owner: Hashable, part: Hashable) -> None:
        self._pool = pool
        self.owner = owner
        self.part = part
        self.octets = 0
        self.revoked = False
        self._on_revoke: Callable[[], None] | None = None

    def begin(self, on_revoke: Callable[[], None]) -> None:
        """Start receiving content. Until `complete`, the pool may revoke the reservation; `on_revoke` must then drop
        the content.
        """
        self._on_revoke = on_revoke
        self._pool.watch(self)

    def take(self, size_bytes: int) -> None:
        """Reserve more bytes. Raises 429 beyond the share of the owner, 503 when the pool is full or has revoked this
        reservation.
        """
        if self.revoked:
            raise full()
        self._pool.take(self, size_bytes)

    def complete(self) -> None:
        """End receiving: the pool no longer revokes this reservation. Raises 503 if it has been revoked."""
        if self.revoked:
            raise full()
        self._pool.unwatch(self)

    def release(self) -> None:
        """Release all bytes. Idempotent."""
        self._pool.unwatch(self)
        self._pool.release(self)

    def revoke(self) -> None:
        """Release all bytes of content that is still arriving, and call `on_revoke`."""
        self.revoked = True
        self.release()
        if self._on_revoke is not None:
            self._on_revoke()


def full() -> Refusal:
    """Return the 503 for a pool without free memory."""
    return Refusal(
        ErrorType.UNAVAILABLE,
        "The server is busy with large requests, so yours was not accepted. Retry in a few seconds.",
        retry_after_s=RETRY_AFTER_S,
    )


def _share_exceeded(limit: int) -> Refusal:
    return Refusal(
        ErrorType.RATE_LIMITED,
        f"Your uploads in progress exceed {limit} bytes. Send large requests one at a time.",
        retry_after_s=RETRY_AFTER_S,
    )


def _subtract(held: dict[Hashable, int], name: Hashable, size_bytes: int) -> None:
    left = held[name] - size_bytes
    if left:
        held[name] = left
    else:
        del held[name]
