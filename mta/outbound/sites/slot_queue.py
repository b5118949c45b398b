"""Lets tasks wait for a slot of `Slots`, and ends openings early when others wait."""

import asyncio

from engine.base import clock
from engine.store import metrics
from mta.outbound.sites.slots import SlotClaim, SlotCounts, Slots
from mta.smtp.client.opening import OpeningAbort


class SlotQueue:
    """The slots of one kind in one process, within one event loop."""

    def __init__(self, kind: str, total: int) -> None:
        self._kind = kind
        self._slots = Slots(total)
        self._waiting: dict[SlotClaim, asyncio.Future[bool]] = {}
        self._cuts: dict[SlotClaim, OpeningAbort] = {}  # each ends one opening
        self._closed = False

    def measure(self) -> SlotCounts:
        """Update the metrics of waiting claims; return the counts of all states."""
        counts = self._slots.counts
        for name, count in (("proven", counts.waiting_proven), ("unproven", counts.waiting_unproven)):
            metrics.SLOTS_WAITING.labels(self._kind, name).set(count)
        return counts

    @property
    def wants_room(self) -> bool:
        """Return True while claims wait because all slots are in use."""
        return bool(self._waiting) and self._slots.are_used_up

    async def acquire(self, claim: SlotClaim) -> bool:
        """Wait for a slot; return False when the process stops. What was acquired must be given to `free`."""
        waiting = self.ask(claim)
        return waiting is None or await self.wait(claim, waiting)

    def ask(self, claim: SlotClaim) -> "asyncio.Future[bool] | None":
        """Grant a slot at once and return None, or return the future of the grant for `wait`."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_result(False)
            return future
        if self._slots.ask(claim, clock.monotonic()):
            return None
        self._waiting[claim] = future
        self._grant()
        return future

    async def wait(self, claim: SlotClaim, future: "asyncio.Future[bool]") -> bool:
        """Wait for the grant of a claim that was asked for; return False when the process stops."""
        try:
            granted = await future
        except asyncio.CancelledError:
            if self._waiting.pop(claim, None) is not None:
                self._slots.withdraw(claim)
            elif future.done() and not future.cancelled() and future.result():
                self.free(claim)
            raise
        metrics.SLOT_WAIT_SECONDS.labels(self._kind, _lane(claim)).observe(clock.monotonic() - claim.asked_at)
        return granted

    def free(self, claim: SlotClaim, *, failed: bool = False) -> None:
        """Give the slot back: the claim's connection is closed, or with `failed` could not be opened."""
        self._slots.free(claim, failed=failed)
        self._grant()

    def ready(self, claim: SlotClaim) -> None:
        """Note that the claim's server is ready for MAIL."""
        self._slots.ready(claim)
        self._grant()

    def answered(self, claim: SlotClaim) -> None:
        """Note that the claim's server has answered a transaction."""
        if not claim.proven:
            self._slots.answered(claim)
            self._grant()

    # -- openings ------------------------------------------------------------------------------

    def opening(self, claim: SlotClaim, host: object, cut: OpeningAbort) -> None:
        """Note that the claim's connection is being opened to `host`; `cut` can end that."""
        if claim.pools:
            self._slots.next_address(claim, host, clock.monotonic())
        self._cuts[claim] = cut

    def opening_over(self, claim: SlotClaim) -> None:
        """Note that the opening has succeeded or failed."""
        self._cuts.pop(claim, None)

    def end_overdue(self) -> None:
        """End the openings that last too long while others wait; call it several times per second."""
        for claim in self._slots.overdue(clock.monotonic()):
            if cut := self._cuts.pop(claim, None):
                metrics.TALLY.add(metrics.CONNECTIONS, "cut_short")
                cut.make()
        self._grant()

    def close(self) -> None:
        """Grant no more slots and end the openings: the process stops."""
        self._closed = True
        for claim, future in list(self._waiting.items()):
            self._slots.withdraw(claim)
            del self._waiting[claim]
            if not future.done():
                future.set_result(False)
        cuts, self._cuts = self._cuts, {}
        for cut in cuts.values():
            cut.make()

    def _grant(self) -> None:
        while granted := self._slots.grant(clock.monotonic()):
            for claim in granted:
                future = self._waiting.pop(claim)
                if future.done():  # its task is being cancelled
                    self._slots.free(claim)
                else:
                    future.set_result(True)


def _lane(claim: SlotClaim) -> str:
    """Return the lane in which a claim waits, as metrics name it."""
    return "proven" if claim.proven else "unproven"
