"""The active queue of one process: the deliveries in memory, and what was settled lately.

Only the event that asks the fetch stage for more touches the event loop; everything else is plain data.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from mta.outbound.broadcast_window import BroadcastWindow
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.source_ips.unspent_quota import UnspentQuota

FULL = 0.75  # of the active queue: due rows fill it up to here, the rest is for fresh mail

Key = tuple[UUID, str]
Share = tuple[str, UUID, int]  # domain, account and priority


class ActiveQueue:
    """The deliveries of one process in memory, each in it once."""

    def __init__(self, limit: int, unspent: UnspentQuota) -> None:
        self.limit = limit
        self.closed = False  # nothing new is taken
        self.broadcasts = BroadcastWindow(max(1, int(FULL * limit)))
        self.refill = asyncio.Event()  # the fetch stage waits for it to ask for due rows
        self._refill_at = -1  # set `refill` once at most so many deliveries are left
        self._unspent = unspent
        self._deliveries: dict[Key, ActiveDelivery] = {}
        self._by_shard: Counter[int] = Counter()
        self._by_domain: dict[Share, int] = {}
        self._settled: tuple[dict[Key, int], dict[Key, int]] = ({}, {})

    def __len__(self) -> int:
        return len(self._deliveries)

    def __iter__(self) -> Iterator[ActiveDelivery]:
        return iter(list(self._deliveries.values()))

    @property
    def room(self) -> int:
        """Return how many more deliveries fit."""
        return 0 if self.closed else self.limit - len(self._deliveries)

    @property
    def by_domain(self) -> Mapping[Share, int]:
        """Return the number of deliveries by domain, account and priority."""
        return self._by_domain

    @property
    def excess(self) -> int:
        """Return how many deliveries there are beyond a comfortably full queue."""
        return len(self._deliveries) - int(FULL * self.limit)

    def close(self) -> None:
        """Take no new deliveries from now on."""
        self.closed = True

    def refill_below(self, count: int | None) -> None:
        """Set `refill` with the next delivery that leaves at most `count` behind; None: not at all."""
        self._refill_at = -1 if count is None else count

    def ask_for_refill(self) -> None:
        """Set `refill` now if few enough deliveries are left."""
        if len(self._deliveries) <= self._refill_at:
            self.refill.set()

    def add(self, delivery: ActiveDelivery) -> None:
        """Add a delivery."""
        self._deliveries[delivery.key] = delivery
        self._by_shard[delivery.row.shard] += 1
        share = _share_of(delivery)
        self._by_domain[share] = self._by_domain.get(share, 0) + 1
        self.broadcasts.taken(delivery)

    def has(self, delivery: ActiveDelivery) -> bool:
        """Return False once the delivery was settled, handed back, or taken away by a fence."""
        return self._deliveries.get(delivery.key) is delivery

    def of_any(self, shards: Iterable[int]) -> bool:
        """Return True while deliveries of these shards are in the queue."""
        return any(self._by_shard[shard] for shard in shards)

    def whole(self) -> list[UUID]:
        """Return the messages all of whose recipients are in the queue."""
        return [key[0] for key, one in self._deliveries.items() if one.row.total == len(one.pairs)]

    def drop(self, delivery: ActiveDelivery) -> None:
        """Remove a delivery."""
        if self.has(delivery):
            del self._deliveries[delivery.key]
            self._by_shard[delivery.row.shard] -= 1
            self._uncount(_share_of(delivery))
            self.broadcasts.left(delivery)
            self.ask_for_refill()
        self._unspent.add(delivery)

    def forget_all(self) -> None:
        """Remove everything: other processes own it now."""
        self._deliveries.clear()
        self._by_shard.clear()
        self._by_domain.clear()
        self.broadcasts.clear()

    def _uncount(self, share: Share) -> None:
        left = self._by_domain[share] - 1
        if left:
            self._by_domain[share] = left
        else:
            del self._by_domain[share]

    # -- what is known of rows that may turn up again --------------------------------------------

    def known(self, key: Key, attempts: int | None = None) -> bool:
        """Return True for a row in the queue, or settled so lately that a row read before that commit may still turn
        up."""
        if key in self._deliveries:
            return True
        if attempts is None:
            return False
        return any(known.get(key, -1) >= attempts for known in self._settled)

    def remember(self, delivery: ActiveDelivery) -> None:
        """Note that a delivery was settled."""
        self._settled[0][delivery.key] = delivery.row.attempts

    def turn(self) -> None:
        """Forget what was settled the time before last."""
        self._settled = ({}, self._settled[0])


def _share_of(delivery: ActiveDelivery) -> Share:
    row = delivery.row
    return row.domain, row.account_id, row.priority
