"""Recipient domains whose servers answered mail of this process lately. No I/O.

Deliveries to them can be expected to leave memory soon; those to any other domain may stay for long, so their number
is bounded. Known by domain, because that is all that is known of a queue row before it is routed.
"""

from collections.abc import Callable
from typing import Final

from engine.base import clock

PROVEN_S: Final = 3_600.0
MAX_DOMAINS: Final = 50_000


class ProvenDomains:
    """The proven domains of one process; at most `MAX_DOMAINS`, the one that was added first forgotten first."""

    def __init__(self, now: Callable[[], float] = clock.monotonic) -> None:
        self._now = now
        self._until: dict[str, float] = {}

    def __contains__(self, domain: str) -> bool:
        return self._until.get(domain, 0.0) > self._now()

    def answered(self, domain: str) -> None:
        """Record that a server of the domain has answered a transaction."""
        if domain not in self._until and len(self._until) >= MAX_DOMAINS:
            del self._until[next(iter(self._until))]
        self._until[domain] = self._now() + PROVEN_S

    def failed(self, domain: str) -> None:
        """Record that no server of the domain could be reached, or that none answered in time."""
        self._until.pop(domain, None)
