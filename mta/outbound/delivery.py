"""A delivery in memory: a queue row on its way to a site."""

from collections.abc import Sequence

from engine.authentication import dkim_signing as dkim
from engine.base import clock
from engine.delivery.queue import Row
from engine.delivery.sources_store import Taken
from mta.outbound.delivery_wait import DeliveryWait
from mta.smtp.client.connection import Envelope


class ActiveDelivery:
    """A queue row in memory, on its way to its site."""

    __slots__ = (
        "addresses", "envelope", "key", "keys", "loaded_at", "pairs", "return_path_host", "row",
        "settling", "signature", "simulated", "suppressed", "taken", "taken_at", "tries", "wait", "waits",
    )  # fmt: skip

    def __init__(
        self,
        row: Row,
        loaded_at: float,
        *,
        simulated: bool = False,
        pairs: list[tuple[int, str]] | None = None,
    ) -> None:
        self.row = row
        self.key = row.key  # read ten times for each message
        self.simulated = simulated  # to the simulator: suppresses nobody and says nothing of its account
        self.pairs = row.pairs if pairs is None else pairs  # given for a sealed row
        self.addresses = tuple([address for _, address in self.pairs])  # to send to now
        self.loaded_at = loaded_at  # or when suppressions were checked since; monotonic
        self.taken_at = loaded_at
        self.wait = DeliveryWait(loaded_at)
        self.taken: Taken | None = None  # warm-up quota reserved for it, until it is tried
        self.keys: Sequence[dkim.SigningKey] = ()
        self.return_path_host = ""  # set with the keys
        self.suppressed: dict[str, str] = {}  # address -> reason
        self.signature = row.signature
        self.envelope: Envelope | None = None
        self.settling = False  # its outcome is being stored
        self.waits = True  # for its route or at its site; False once a connection has taken it
        self.tries = 0  # connections that broke before anything was decided

    @property
    def is_too_late(self) -> bool:
        """Return True once the message's `deliverBy` has passed: no attempt is made after it."""
        return self.row.deliver_by is not None and self.row.deliver_by <= clock.now()

    def suppress(self, address: str, reason: str) -> None:
        """Send nothing to this address."""
        self.suppressed[address] = reason
        self.addresses = tuple([one for one in self.addresses if one != address])
