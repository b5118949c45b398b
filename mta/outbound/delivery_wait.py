"""The waiting time of a delivery while one process holds it, and its division into causes. No I/O."""

from collections.abc import Mapping
from datetime import datetime

from engine.base import clock
from engine.delivery.queue import Row
from engine.delivery.wait_reasons import QueuedReason
from engine.delivery.waits import WaitCause, divided, stored
from mta.outbound.wait_clock import SiteWait, WaitMark

_FOR_CONNECTION = (QueuedReason.SITE_OPENING, QueuedReason.CONNECTION_SLOT, QueuedReason.LOOKUP_SLOT)


class DeliveryWait:
    """The times of one delivery: from the moment it was taken into memory until its outcome, or until it is put back.

    Until it waits at its site it is being routed. At its site it waits from each `line_up` to the next `begin`, more
    than once if connections break.
    """

    __slots__ = ("_began", "_lined_up_at", "_mark", "_taken_at", "_tried_s", "_waited")

    def __init__(self, taken_at: float) -> None:
        self._taken_at = taken_at
        self._lined_up_at: float | None = None
        self._mark: WaitMark | None = None  # while it waits at its site
        self._began: float | None = None  # its present transaction
        self._waited: SiteWait | None = None  # before its present transaction
        self._tried_s = 0.0  # in transactions that broke

    def line_up(self, mark: WaitMark, now: float) -> None:
        """Note that it waits at its site from `mark` on, unless it waits there already."""
        if self._mark is not None:
            return
        self._mark = mark
        if self._lined_up_at is None:
            self._lined_up_at = now
        if self._began is not None:
            self._tried_s += now - self._began
            self._began = None

    def begin(self, now: float) -> None:
        """Note that its transaction begins."""
        self._waited = self._at_site(now)
        self._mark = None
        self._began = now

    def upto(self, ended: datetime, started: datetime, row: Row) -> tuple[dict[WaitCause, int], float]:
        """Return the milliseconds by cause since the outcome before, and the account's fair share at the site.

        `ended` is the present time; the transaction, if one is under way, lasts since `started`.
        """
        now = clock.monotonic()
        if self._began is None:
            return self._divided(row, ended, now)
        waits, fair_share = self._divided(row, started, self._began)
        lasts_ms = clock.milliseconds(ended) - clock.milliseconds(started)
        if lasts_ms > 0:
            waits[WaitCause.TRANSACTION] = waits.get(WaitCause.TRANSACTION, 0) + lasts_ms
        return waits, fair_share

    def ages(self, now: float) -> tuple[float, float | None]:
        """Return how long ago it was taken into memory, and began to wait at its site, None if it never did."""
        return now - self._taken_at, None if self._lined_up_at is None else now - self._lined_up_at

    def postponed(self, now: datetime, row: Row, reason: QueuedReason) -> str:
        """Return what a row keeps that is put back into the queue for `reason`."""
        waits, _ = self._divided(row, now, clock.monotonic())
        return stored(now, waits, self._then(reason))

    def _divided(self, row: Row, at: datetime, now: float) -> tuple[dict[WaitCause, int], float]:
        site = self._at_site(now)
        routed_s = (now if self._lined_up_at is None else self._lined_up_at) - self._taken_at
        parts_ms: dict[WaitCause, float] = {WaitCause.CONNECTION: routed_s * 1_000}
        fair_share = 1.0
        if site is not None:
            parts_ms[WaitCause.CONNECTION] += site.opening * 1_000
            parts_ms[WaitCause.SITE_LIMITS] = site.limited * 1_000
            parts_ms[WaitCause.OTHER_ACCOUNTS] = site.others * 1_000
            parts_ms[WaitCause.OWN_MAIL] = site.own * 1_000
            if site.seconds > 0:
                fair_share = min(1.0, max(0.001, round(site.fair / site.seconds, 3)))
        if self._tried_s:
            parts_ms[WaitCause.TRANSACTION] = self._tried_s * 1_000
        return divided(row, clock.milliseconds(at), (now - self._taken_at) * 1_000, parts_ms), fair_share

    def _at_site(self, now: float) -> SiteWait | None:
        """Return the time at the site so far."""
        if self._mark is None:
            return self._waited
        passed = self._mark.passed(now)
        return passed if self._waited is None else self._waited.plus(passed)

    def _then(self, reason: QueuedReason) -> Mapping[WaitCause, float]:
        """Return the causes of the time in the queue until it is due: by the time at its site where connections were in
        use."""
        if reason in _FOR_CONNECTION:
            return {WaitCause.CONNECTION: 1.0}
        site = self._at_site(clock.monotonic())
        if reason == QueuedReason.SITE_WINDOW and site is not None and site.own + site.others > site.limited:
            own = site.own / (site.own + site.others)
            return {WaitCause.OTHER_ACCOUNTS: 1.0 - own, WaitCause.OWN_MAIL: own}
        return {WaitCause.SITE_LIMITS: 1.0}
