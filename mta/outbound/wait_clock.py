"""Measures why the deliveries of a site wait, in constant time per change. No I/O; times are monotonic seconds.

At each moment the servers behind one pacer are in one state: limited by a pace or by the number of connections, busy
with transactions, being connected to, or free. The clock adds up the time in each state. While they are busy it also
adds up the share of the transactions that each account has: `1 / transactions` is integrated once for all accounts,
and an account takes its number of transactions times the growth of that integral whenever that number changes. A
delivery keeps the sums of the moment when it began to wait; their growth is its waiting time by cause.
"""

from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

from msgspec import Struct

_LIMITED: Final = 0
_BUSY: Final = 1
_OPENING: Final = 2
_FREE: Final = 3


class SiteWait(Struct, frozen=True):
    """A waiting time at a site by cause, in seconds; `fair` is the integral of the account's fair share over it."""

    limited: float
    own: float
    others: float
    opening: float
    free: float
    fair: float

    @property
    def seconds(self) -> float:
        """Return the whole time."""
        return self.limited + self.own + self.others + self.opening + self.free

    def plus(self, other: "SiteWait") -> "SiteWait":
        """Return the sum with another time at the same site."""
        return SiteWait(
            self.limited + other.limited, self.own + other.own, self.others + other.others,
            self.opening + other.opening, self.free + other.free, self.fair + other.fair,
        )  # fmt: skip


class AccountShare:
    """The transactions of one account at a site, and its share of the busy time. Lives while a waiting delivery or a
    transaction refers to it."""

    __slots__ = ("__weakref__", "at", "transactions", "used")

    def __init__(self, at: float) -> None:
        self.transactions = 0
        self.used = 0.0  # up to `at`, in seconds of all transactions
        self.at = at  # of the integral that all accounts share

    def upto(self, integral: float) -> float:
        """Return the share of the busy time up to an integral."""
        return self.used + self.transactions * (integral - self.at)

    def count(self, change: int, integral: float) -> None:
        """Change the number of transactions."""
        self.used = self.upto(integral)
        self.at = integral
        self.transactions += change


class WaitMark:
    """The sums of a clock at the moment when a delivery began to wait."""

    __slots__ = ("_clock", "_fair", "_first", "_opening", "_share", "_sums", "_used")

    def __init__(self, wait_clock: "WaitClock", share: AccountShare, opening: "FirstOpening", now: float) -> None:
        self._clock = wait_clock
        self._share = share
        self._opening = opening
        self._sums = wait_clock.sums(now)
        self._fair = wait_clock.fair
        self._used = share.upto(wait_clock.integral)
        self._first = opening.upto(now)

    def passed(self, now: float) -> SiteWait:
        """Return the time since the mark by cause.

        While the first connection of this site was being opened, others of its group may have been busy: that time
        counts as opening, and the other states shrink in proportion.
        """
        limited, busy, opening, free = self._clock.sums(now)
        limited, busy = limited - self._sums[_LIMITED], busy - self._sums[_BUSY]
        opening, free = opening - self._sums[_OPENING], free - self._sums[_FREE]
        own = min(busy, max(0.0, self._share.upto(self._clock.integral) - self._used))
        whole = limited + busy + opening + free
        first = min(whole, max(opening, self._opening.upto(now) - self._first))
        left = (whole - first) / (whole - opening) if whole > opening else 0.0
        fair = self._clock.fair - self._fair
        return SiteWait(limited * left, own * left, (busy - own) * left, first, free * left, fair)


class FirstOpening:
    """The time that a site has spent opening a connection while it had none."""

    __slots__ = ("_began", "_seconds")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._began: float | None = None

    def upto(self, now: float) -> float:
        """Return the seconds up to now."""
        return self._seconds + (0.0 if self._began is None else now - self._began)

    def goes_on(self, now: float, *, opening: bool) -> None:
        """Note whether the site is opening its first connection from now on."""
        if opening == (self._began is not None):
            return
        self._seconds = self.upto(now)
        self._began = now if opening else None


class WaitClock:
    """The time that the servers behind one pacer have spent in each state."""

    __slots__ = ("_accounts", "_at", "_sums", "_transactions", "fair", "integral", "opening", "pacing", "workers")

    def __init__(self, now: float) -> None:
        self._at = now
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._accounts: WeakValueDictionary[UUID, AccountShare] = WeakValueDictionary()
        self._transactions = 0
        self.integral = 0.0  # of 1 / transactions
        self.fair = 0.0  # the integral of 1 / accounts with mail here
        self.workers = 0
        self.opening = 0  # connections being opened, or waiting for a slot of the process
        self.pacing = 0  # workers that wait for the right to begin a message

    def mark(self, account: UUID, opening: FirstOpening, now: float) -> WaitMark:
        """Return the mark of a delivery that begins to wait."""
        self._advance(now)
        return WaitMark(self, self._share(account), opening, now)

    def begin(self, account: UUID, now: float) -> AccountShare:
        """Count a transaction; pass the result to `end`."""
        self._advance(now)
        share = self._share(account)
        share.count(1, self.integral)
        self._transactions += 1
        return share

    def end(self, share: AccountShare, now: float) -> None:
        """Count a transaction less."""
        self._advance(now)
        share.count(-1, self.integral)
        self._transactions -= 1

    def change(self, now: float, *, workers: int = 0, opening: int = 0, pacing: int = 0) -> None:
        """Change the number of workers, of connections being opened, and of workers that wait for the pace."""
        self._advance(now)
        self.workers += workers
        self.opening += opening
        self.pacing += pacing

    def sums(self, now: float) -> tuple[float, float, float, float]:
        """Return the seconds up to now that were limited, busy, opening and free."""
        self._advance(now)
        limited, busy, opening, free = self._sums
        return limited, busy, opening, free

    def _advance(self, now: float) -> None:
        passed = now - self._at
        if passed <= 0.0:
            return
        self._at = now
        if self.pacing:
            self._sums[_LIMITED] += passed
        elif self._transactions:
            self._sums[_BUSY] += passed
        elif self.opening:
            self._sums[_OPENING] += passed
        else:
            self._sums[_FREE if self.workers else _LIMITED] += passed
        if self._transactions and not self.pacing:
            self.integral += passed / self._transactions
        self.fair += passed / (len(self._accounts) or 1)

    def _share(self, account: UUID) -> AccountShare:
        share = self._accounts.get(account)
        if share is None:
            share = self._accounts[account] = AccountShare(self.integral)
        return share
