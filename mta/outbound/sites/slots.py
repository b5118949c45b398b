"""Decides which connection may be opened next: the connection slots of one process, shared fairly. Pure: no I/O, no
clock.

A claim asks for one connection, on behalf of the account whose message is next at the site. It waits, is opening from
the moment it is granted until the server is ready for MAIL, and works until the connection is closed.

Three bounds hold at once, so that servers that do not answer never hold the slots that other mail needs: All claims
together have `total` slots. Claims of hosts that have answered mail lately ("proven") may have a quarter of the slots
opening at once; one that is still opening after `LINGER_S` counts as unproven. Claims of all other hosts have half of
the slots, until the server has answered a first transaction.

Within each bound an account that asks for more than the others never gets everything: it may hold `greed` times as many
slots as are left free (dynamic thresholds, Choudhury and Hahne 1998). The slots of all are shared by host in the same
way. Waiting claims are served in this order: proven hosts, then the account with the fewest slots and failures, then
the host with the fewest failures, then the newest claim: in an overload the newest is the likeliest to succeed, and
deliveries that wait long return to the queue.
"""

import itertools
import math
from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final
from uuid import UUID

from msgspec import Struct

LINGER_S: Final = 2.0  # a healthy server is ready for MAIL within this
STRESSED_S: Final = 10.0  # for one opening while others wait; Postfix smtpd_timeout under stress is 10 s
MAX_STRESSED_S: Final = 40.0  # for a host that failed before: it may be slow rather than silent
CUTS: Final = 200  # 1/CUTS of the slots is freed at once: each failure costs half a millisecond of the event loop
FORGET_S: Final = 60.0  # after which an account's failures count half
GREED_ALL, GREED_LANE = 3, 1  # one account alone may hold 3/4 of all slots, and 1/2 of a lane

_LANES: Final = (True, False)  # proven first


class SlotClaim:
    """The claim of one connection to `host`, then the slot that it holds."""

    __slots__ = ("account", "asked_at", "began", "failures", "greeted", "host", "number", "pools", "proven")

    def __init__(self, account: UUID, host: Hashable, *, proven: bool, failures: int = 0) -> None:
        self.account = account
        self.host = host
        self.proven = proven
        self.failures = failures  # of the host, in a row
        self.number = 0  # in the order of asking
        self.asked_at = 0.0
        self.began = 0.0  # the opening, or the attempt at its present address
        self.greeted = False
        self.pools: list[_SlotPool] = []  # the pools in which it holds a place; empty while it waits

    @property
    def rank(self) -> tuple[int, int]:
        """Return the order among the waiting claims of its account, the first to be served lowest."""
        return self.failures, -self.number

    @property
    def patience_s(self) -> float:
        """Return how long its opening may last while others wait for the slot."""
        return min(MAX_STRESSED_S, STRESSED_S * 2.0 ** min(self.failures, 8))


class SlotCounts(Struct, frozen=True):
    """The number of claims in each state, for metrics."""

    opening: int
    working: int
    waiting_proven: int
    waiting_unproven: int


class Slots:
    """The slots of one process and the claims that wait for them. Times are monotonic seconds given by the caller."""

    def __init__(self, total: int) -> None:
        self._all = _SlotPool(total, GREED_ALL)
        self._by_host = _SlotPool(total, GREED_ALL)
        self._opening = _SlotPool(max(1, total // 4), GREED_LANE)  # of proven hosts
        self._unproven = _SlotPool(max(1, total // 2), GREED_LANE)
        self._cuts = max(1, total // CUTS)  # at once
        self._lanes = {lane: _SlotLane() for lane in _LANES}
        self._under_way: dict[SlotClaim, None] = {}  # opening, the oldest first
        self._failures: Counter[UUID] = Counter()  # failed openings by account, lately
        self._halved_at = 0.0
        self._numbers = itertools.count(1)

    # -- for one claim -------------------------------------------------------------------------

    def ask(self, claim: SlotClaim, now: float) -> bool:
        """Grant a slot at once, or let the claim wait and return False: then `grant` decides about all that wait."""
        claim.number = next(self._numbers)
        claim.asked_at = now
        lane = self._lanes[claim.proven]
        if not lane.count and self._fits(claim):
            self._grant(claim, now)
            return True
        lane.put(claim)
        return False

    def withdraw(self, claim: SlotClaim) -> None:
        """Forget a claim that waits."""
        self._lanes[claim.proven].remove(claim)

    def next_address(self, claim: SlotClaim, host: Hashable, now: float) -> None:
        """Continue the opening at another address, whose time starts now."""
        self._leave(claim, self._by_host)
        claim.host, claim.began = host, now
        self._enter(claim, self._by_host)

    def ready(self, claim: SlotClaim) -> None:
        """Note that the server is ready for MAIL."""
        claim.greeted = True
        self._under_way.pop(claim, None)
        self._leave(claim, self._opening)

    def answered(self, claim: SlotClaim) -> None:
        """Note that the server has answered a transaction: its host is proven."""
        claim.proven = True
        self._leave(claim, self._unproven)

    def free(self, claim: SlotClaim, *, failed: bool = False) -> None:
        """Give the slot back: the connection is closed, or with `failed` could not be opened."""
        if failed:
            self._failures[claim.account] += 1
        self._under_way.pop(claim, None)
        for pool in list(claim.pools):
            self._leave(claim, pool)

    # -- for all -------------------------------------------------------------------------------

    @property
    def counts(self) -> SlotCounts:
        """Return the number of claims by state."""
        opening = len(self._under_way)
        return SlotCounts(opening, self._all.used - opening, self._lanes[True].count, self._lanes[False].count)

    @property
    def are_used_up(self) -> bool:
        """Return True while no slot is free."""
        return not self._all.free

    def grant(self, now: float) -> list[SlotClaim]:
        """Grant free slots to waiting claims and return these."""
        granted: list[SlotClaim] = []
        for lane in self._lanes.values():
            while lane.count and self._all.free and (claim := self._choose(lane)) is not None:
                lane.remove(claim)
                self._grant(claim, now)
                granted.append(claim)
        return granted

    def overdue(self, now: float) -> list[SlotClaim]:
        """Return openings to end because others wait for their slots: the oldest of the accounts that have most, few at
        once and at most one for each that waits. Count proven hosts whose openings linger as unproven."""
        self._forget_failures(now)
        self._move_lingering(now)
        waiting = {account: len(claims) for lane in self._lanes.values() for account, claims in lane.claims.items()}
        if not waiting:
            return []
        held = Counter(claim.account for claim in self._under_way)
        least = min(held[account] for account in waiting)
        ended = [
            claim
            for claim in self._under_way
            if now - claim.began > claim.patience_s
            and (claim.account in waiting or held[claim.account] > least)
        ]  # fmt: skip
        ended.sort(key=lambda claim: (-held[claim.account], claim.began))
        return ended[: min(self._cuts, sum(waiting.values()))]

    # -- inside --------------------------------------------------------------------------------

    def _fits(self, claim: SlotClaim) -> bool:
        lane = self._opening if claim.proven else self._unproven
        return (
            lane.has_room(claim.account)
            and self._all.has_room(claim.account)
            and self._by_host.has_room(claim.host)
        )  # fmt: skip

    def _grant(self, claim: SlotClaim, now: float) -> None:
        for pool in (self._all, self._by_host, self._opening if claim.proven else self._unproven):
            self._enter(claim, pool)
        claim.began = now
        self._under_way[claim] = None

    def _choose(self, lane: "_SlotLane") -> SlotClaim | None:
        """The best claim that fits, of the account with the fewest slots and failures that has one."""
        pool = self._opening if lane is self._lanes[True] else self._unproven
        if not pool.free:
            return None
        best: SlotClaim | None = None
        lowest = math.inf
        for account, claims in lane.claims.items():
            score = pool.held[account] + self._failures[account]
            if score < lowest and pool.has_room(account) and self._all.has_room(account):
                fitting = next((claim for claim in claims if self._by_host.has_room(claim.host)), None)
                if fitting is not None:
                    best, lowest = fitting, score
        return best

    def _move_lingering(self, now: float) -> None:
        for claim in self._under_way:
            if claim.proven and self._opening in claim.pools and now - claim.began > LINGER_S:
                claim.proven = False
                self._leave(claim, self._opening)
                self._enter(claim, self._unproven)

    def _forget_failures(self, now: float) -> None:
        if now - self._halved_at > FORGET_S:
            self._halved_at = now
            self._failures = Counter({account: count // 2 for account, count in self._failures.items() if count > 1})

    def _enter(self, claim: SlotClaim, pool: "_SlotPool") -> None:
        claim.pools.append(pool)
        pool.add(claim.host if pool is self._by_host else claim.account)

    def _leave(self, claim: SlotClaim, pool: "_SlotPool") -> None:
        if pool in claim.pools:
            claim.pools.remove(pool)
            pool.remove(claim.host if pool is self._by_host else claim.account)


class _SlotPool:
    """Places of one kind, and how many each account (or host) holds."""

    __slots__ = ("_greed", "_size", "held", "used")

    def __init__(self, size: int, greed: int) -> None:
        self._size = size
        self._greed = greed
        self.used = 0
        self.held: Counter[Hashable] = Counter()

    @property
    def free(self) -> int:
        return max(0, self._size - self.used)

    def has_room(self, holder: Hashable) -> bool:
        """Return True if the holder may have one more place."""
        free = self._size - self.used
        return free > 0 and self.held[holder] < max(1, self._greed * free)

    def add(self, holder: Hashable) -> None:
        self.used += 1
        self.held[holder] += 1

    def remove(self, holder: Hashable) -> None:
        self.used -= 1
        self.held[holder] -= 1
        if not self.held[holder]:
            del self.held[holder]


class _SlotLane:
    """Claims that wait, by account, each account's best first."""

    __slots__ = ("claims", "count")

    def __init__(self) -> None:
        self.claims: dict[UUID, list[SlotClaim]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[SlotClaim]:
        for claims in self.claims.values():
            yield from claims

    def put(self, claim: SlotClaim) -> None:
        insort(self.claims.setdefault(claim.account, []), claim, key=lambda one: one.rank)
        self.count += 1

    def remove(self, claim: SlotClaim) -> None:
        claims = self.claims[claim.account]
        claims.remove(claim)
        if not claims:
            del self.claims[claim.account]
        self.count -= 1
