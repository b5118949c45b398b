"""The fair queue of one site: deliveries by priority, and within a priority account by account. No I/O.

Deficit round robin (Shreedhar and Varghese 1995) over accounts, so that one account's hundred thousand messages do not
delay another's single code; an account pays by octets, with a floor for the transaction itself. Higher priorities go
first, except every eighth turn, which goes to the lowest priority that waits: none starves.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from uuid import UUID

from mta.outbound.delivery import ActiveDelivery

PRIORITIES = 4  # mail_priority() in the database
LOWEST_EVERY = 8
QUANTUM = 64 * 1024  # octets an account may send in its turn
FLOOR = 4 * 1024  # octets that a transaction costs at least
LARGE = 1024 * 1024  # octets that count for a body which is loaded on its turn


class FairQueue:
    """The deliveries that wait for one site."""

    def __init__(self) -> None:
        self._front: deque[ActiveDelivery] = deque()  # already chosen, or to be retried at once
        self._rings = tuple(_PriorityRing() for _ in range(PRIORITIES))
        self._count = 0
        self._turn = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ActiveDelivery]:
        yield from self._front
        for ring in self._rings:
            yield from ring

    def heads(self, count: int) -> Iterator[ActiveDelivery]:
        """Yield the first `count` deliveries of each account and priority: what may be taken next is among them."""
        yield from self._front
        for ring in self._rings:
            for queue in ring.queues.values():
                yield from islice(queue, count)

    def put(self, delivery: ActiveDelivery) -> None:
        """Add a delivery behind the others of its account."""
        self._count += 1
        delivery.waits = True
        self._rings[min(max(delivery.row.priority, 0), PRIORITIES - 1)].put(delivery)

    def put_first(self, delivery: ActiveDelivery) -> None:
        """Add a delivery in front of all others."""
        self._count += 1
        delivery.waits = True
        self._front.appendleft(delivery)

    def peek(self) -> ActiveDelivery | None:
        """Return the delivery that will be taken next; the choice is final."""
        if not self._front:
            if not self._count:
                return None
            self._front.append(self._choose())
        return self._front[0]

    def take(self) -> ActiveDelivery | None:
        """Remove and return the next delivery, or None if none waits."""
        if not self._count:
            return None
        self._count -= 1
        delivery = self._front.popleft() if self._front else self._choose()
        delivery.waits = False
        return delivery

    def clear(self) -> list[ActiveDelivery]:
        """Remove and return all deliveries, in no particular order."""
        return self.drop(lambda _: True)

    def drop(self, gone: Callable[[ActiveDelivery], bool]) -> list[ActiveDelivery]:
        """Remove and return the deliveries of which `gone` is true."""
        self._front, found = _parted(self._front, gone)
        for ring in self._rings:
            found += ring.drop(gone)
        self._count -= len(found)
        return found

    def shed(self, count: int) -> list[ActiveDelivery]:
        """Remove and return `count` deliveries: the newest of the account with the most waiting, the lowest priority
        first."""
        found: list[ActiveDelivery] = []
        for ring in reversed(self._rings):
            found += ring.shed(count - len(found))
        self._count -= len(found)
        return found

    def _choose(self) -> ActiveDelivery:
        self._turn += 1
        rings = reversed(self._rings) if self._turn % LOWEST_EVERY == 0 else iter(self._rings)
        return next(ring for ring in rings if ring.count).take()


class _PriorityRing:
    """The deliveries of one priority: accounts in the order of their turns."""

    __slots__ = ("count", "credit", "queues")

    def __init__(self) -> None:
        self.count = 0
        self.queues: OrderedDict[UUID, deque[ActiveDelivery]] = OrderedDict()
        self.credit: dict[UUID, int] = {}

    def __iter__(self) -> Iterator[ActiveDelivery]:
        for queue in self.queues.values():
            yield from queue

    def put(self, delivery: ActiveDelivery) -> None:
        queue = self.queues.get(delivery.row.account_id)
        if queue is None:
            queue = self.queues[delivery.row.account_id] = deque()
        queue.append(delivery)
        self.count += 1

    def take(self) -> ActiveDelivery:
        while True:
            account, queue = next(iter(self.queues.items()))
            if len(self.queues) == 1:
                break
            credit = self.credit.get(account, QUANTUM) - _cost(queue[0])
            if credit >= 0:
                self.credit[account] = credit
                break
            self.credit[account] = credit + _cost(queue[0]) + QUANTUM  # its turn is over; the next one has more credit
            self.queues.move_to_end(account)
        self.count -= 1
        delivery = queue.popleft()
        if not queue:
            self._forget(account)
        return delivery

    def drop(self, gone: Callable[[ActiveDelivery], bool]) -> list[ActiveDelivery]:
        found: list[ActiveDelivery] = []
        for account, queue in list(self.queues.items()):
            kept, left = _parted(queue, gone)
            if not left:
                continue
            found += left
            self.queues[account] = kept
            if not kept:
                self._forget(account)
        self.count -= len(found)
        return found

    def shed(self, count: int) -> list[ActiveDelivery]:
        """Cut the longest queue down to the length of the next one, and so on, until `count` deliveries are removed."""
        found: list[ActiveDelivery] = []
        while len(found) < count and self.count:
            longest = sorted(self.queues, key=lambda account: -len(self.queues[account]))
            queue = self.queues[longest[0]]
            others = len(self.queues[longest[1]]) if len(longest) > 1 else 0
            leave = min(count - len(found), max(1, len(queue) - others))
            found += list(islice(reversed(queue), leave))
            for _ in range(leave):
                queue.pop()
            self.count -= leave
            if not queue:
                self._forget(longest[0])
        return found

    def _forget(self, account: UUID) -> None:
        del self.queues[account]
        self.credit.pop(account, None)


def _parted(
    queue: deque[ActiveDelivery], gone: Callable[[ActiveDelivery], bool]
) -> tuple[deque[ActiveDelivery], list[ActiveDelivery]]:
    """Split a queue into the deliveries that stay and those that leave; `gone` is called once for each."""
    kept: deque[ActiveDelivery] = deque()
    left: list[ActiveDelivery] = []
    for one in queue:
        (left if gone(one) else kept).append(one)
    return kept, left


def _cost(delivery: ActiveDelivery) -> int:
    mime = delivery.row.mime
    return FLOOR + (LARGE if mime is None else len(mime))
