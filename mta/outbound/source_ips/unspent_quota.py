"""Warm-up quota that was reserved for deliveries which then left memory without being tried. No I/O."""

from collections import Counter

from engine.delivery.sources_store import Taken
from mta.outbound.delivery import ActiveDelivery


class UnspentQuota:
    """Messages by the quota that they were reserved from, until that quota is given back in Postgres."""

    def __init__(self) -> None:
        self._counts: Counter[Taken] = Counter()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, delivery: ActiveDelivery) -> None:
        """Count the quota of a delivery that will not use it; do nothing where it has none."""
        if delivery.taken is not None:
            self._counts[delivery.taken] += 1
            delivery.taken = None

    def take(self) -> Counter[Taken]:
        """Return all counts and begin anew."""
        taken, self._counts = self._counts, Counter()
        return taken

    def put_back(self, taken: Counter[Taken]) -> None:
        """Count again what could not be given back."""
        self._counts.update(taken)
