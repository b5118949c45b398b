"""Divide one process's concurrent posts among webhook endpoints. No I/O.

Endpoints are of three kinds. A proven endpoint answered its last posts quickly and is posted to as fast as it accepts.
Suspects (slow or failing) share half of the posts; suspects and endpoints not known yet share three quarters. Where a
share is nearly used up, each of its endpoints gets one post at a time, in turn. So posts that wait for dead endpoints
never block those to working or new ones.
"""

from collections import deque
from uuid import UUID

from engine.events.webhooks.types import FAILING, Claimed

QUICK_S = 1.0
FIRST = 4  # to an endpoint not known yet, until its first answer
AHEAD_S = 0.25  # claim this many seconds of posts ahead for a proven endpoint, to save round trips
MAX_AHEAD = 128
SUSPECTS, UNPROVEN = 0.5, 0.75  # shares of all posts: suspects; suspects and unknown endpoints
SCARCE = 0.5  # part of a share in use from which each endpoint gets one post at a time
MAX_UNPROVEN_A_ROUND = 16  # posts: hundreds of slow ones started together would also time out together, again and again
_WEIGHT = 0.2  # of the newest answer in the moving average of the time to answer

# A dead endpoint that refuses at once still costs the CPU of each attempt: a burst of these, then one a second.
BURST, REFILL_PER_S = 200, 1.0


class EndpointPace:
    """The state of an endpoint in this process, kept until it is unused for an hour.

    Times are monotonic seconds of service time.
    """

    __slots__ = ("due", "failing_since", "failures", "id", "in_flight", "latency_s", "tokens", "tokens_at", "url",
                 "used_at", "waiting")  # fmt: skip

    def __init__(self, id: UUID, now: float) -> None:  # noqa: A002 - the resource's own word
        self.id = id
        self.url: str | None = None
        self.due = False  # more posts are probably due
        self.in_flight = 0
        self.waiting: deque[tuple[Claimed, float]] = deque()  # claimed posts with the time of their claim
        self.latency_s: float | None = None
        self.failures = 0  # in a row
        self.failing_since: float | None = None
        self.tokens, self.tokens_at = float(BURST), now
        self.used_at = now

    @property
    def in_hand(self) -> int:
        """Count the posts that are claimed and not finished."""
        return self.in_flight + len(self.waiting)

    @property
    def proven(self) -> bool:
        """Return True if the endpoint answers quickly."""
        return self.latency_s is not None and self.latency_s < QUICK_S and self.failures < FAILING

    @property
    def suspect(self) -> bool:
        """Return True if the endpoint has answered, but slowly or with failures."""
        return self.latency_s is not None and not self.proven

    def moved_to(self, url: str | None) -> None:
        """Forget all measurements if the URL has changed."""
        if url != self.url:
            self.url = url
            self.latency_s, self.failures, self.failing_since = None, 0, None
            self.tokens = float(BURST)

    def answered(self, *, delivered: bool, took_s: float, now: float) -> None:
        """Update the measurements with the result of an attempt."""
        known = self.latency_s
        self.latency_s = took_s if known is None else known + _WEIGHT * (took_s - known)
        if delivered:
            self.failures, self.failing_since, self.tokens = 0, None, float(BURST)
            return
        self.failures += 1
        self.failing_since = self.failing_since or now
        if self.failures >= FAILING:
            self.tokens = max(0.0, self._refilled(now) - 1)
            self.tokens_at = now

    def capacity(self, *, each: int, scarce: bool) -> int:
        """Return how many posts the endpoint may have claimed, with at most `each` of them in flight."""
        if self.proven:
            assert self.latency_s is not None
            return max(each, min(MAX_AHEAD, int(each * AHEAD_S / max(self.latency_s, 0.001))))
        if scarce:
            return 1
        return each if self.suspect else min(each, FIRST)

    def room(self, now: float, *, each: int, scarce: bool) -> int:
        """Return how many posts may be claimed for the endpoint now."""
        room = self.capacity(each=each, scarce=scarce) - self.in_hand
        if self.failures >= FAILING:
            room = min(room, int(self._refilled(now)))
        return max(0, room)

    def _refilled(self, now: float) -> float:
        return min(float(BURST), self.tokens + (now - self.tokens_at) * REFILL_PER_S)


class _RemainingShares:
    """The unused shares of suspects and unknown endpoints during one round of claims."""

    def __init__(self, max_in_hand: int, suspects: int, unproven: int) -> None:
        self._max_in_hand = max_in_hand
        self._suspects, self._unproven = suspects, unproven

    def of(self, endpoint: EndpointPace) -> tuple[int, bool]:
        """Return how many more posts endpoints of its kind may claim, and True if this share is scarce."""
        if endpoint.proven:
            return self._max_in_hand, False
        used, share = self._unproven, self._max_in_hand * UNPROVEN
        if endpoint.suspect:
            used, share = self._suspects, self._max_in_hand * SUSPECTS
        return int(share) - used, used >= share * SCARCE

    def take(self, endpoint: EndpointPace, room: int) -> None:
        """Subtract `room` posts from the shares of an endpoint that is not proven."""
        self._unproven += room
        if endpoint.suspect:
            self._suspects += room


class Shares:
    """Choose the endpoints to claim for, in turn, within `max_in_hand` posts in all and `each` in flight per endpoint.

    Lives as long as the poster; drops endpoints by `forget`.
    """

    def __init__(self, *, max_in_hand: int, each: int) -> None:
        self._max_in_hand = max_in_hand
        self.each = each
        self.endpoints: dict[UUID, EndpointPace] = {}
        self._busy: dict[UUID, EndpointPace] = {}  # with posts in hand
        self._ready: dict[UUID, EndpointPace] = {}  # with posts due and room for them, in the order of their turns
        self.unserved = False  # an endpoint with posts due was left out for lack of room

    @property
    def in_hand(self) -> int:
        """Count the posts that are claimed and not finished."""
        return sum(one.in_hand for one in self._busy.values())

    def known(self, id: UUID, now: float) -> EndpointPace:  # noqa: A002 - as above
        """Return the endpoint's state; create it on first use."""
        found = self.endpoints.get(id)
        if found is None:
            found = self.endpoints[id] = EndpointPace(id, now)
        return found

    def has_due(self, endpoint: EndpointPace) -> None:
        """Note that posts are due; the endpoint queues behind those already waiting for their turn."""
        endpoint.due = True
        self._ready.setdefault(endpoint.id, endpoint)

    def next_rooms(self, now: float, *, max_endpoints: int, max_posts: int) -> dict[UUID, int]:
        """Return how many posts to claim for which endpoints; `claimed` then moves these to the end of the turn."""
        left = min(max_posts, self._max_in_hand - self.in_hand)
        shares = self._shares_left()
        unproven_left = MAX_UNPROVEN_A_ROUND
        rooms: dict[UUID, int] = {}
        full: list[UUID] = []
        self.unserved = False
        for endpoint in self._ready.values():
            if left <= 0 or len(rooms) >= max_endpoints:
                self.unserved = True
                break
            share, scarce = shares.of(endpoint)
            if not endpoint.proven:
                share = min(share, unproven_left)
            if share <= 0:
                self.unserved = True
                continue
            room = min(left, share, endpoint.room(now, each=self.each, scarce=scarce))
            if not endpoint.proven:
                shares.take(endpoint, room)
                unproven_left -= room
            left -= room
            if room:
                rooms[endpoint.id] = room
            else:
                full.append(endpoint.id)  # its next finished post, or the next poll, adds it again
        for id in full:  # noqa: A001 - as above
            del self._ready[id]
        return rooms

    def _shares_left(self) -> "_RemainingShares":
        unproven = [one for one in self._busy.values() if not one.proven]
        suspects = sum(one.in_hand for one in unproven if one.suspect)
        return _RemainingShares(self._max_in_hand, suspects, sum(one.in_hand for one in unproven))

    def claimed(self, rooms: dict[UUID, int], found: dict[UUID, int]) -> None:
        """Record how many posts each claim found; fewer than asked for means that no more are due."""
        for id, room in rooms.items():  # noqa: A001 - as above
            self._ready.pop(id, None)
            endpoint = self.endpoints[id]
            endpoint.due = found.get(id, 0) >= room
            if id in found:
                self._busy[id] = endpoint

    def ended(self, endpoint: EndpointPace, now: float) -> bool:
        """Note that a post has finished; return True if a new claim is worthwhile."""
        if not endpoint.in_hand:
            self._busy.pop(endpoint.id, None)
        if endpoint.due and endpoint.id not in self._ready:
            room = endpoint.room(now, each=self.each, scarce=False)
            if 4 * room >= endpoint.capacity(each=self.each, scarce=False) or not endpoint.in_hand:
                self._ready[endpoint.id] = endpoint
                return True
        return self.unserved

    def forget(self, before: float) -> None:
        """Drop endpoints unused since `before` (monotonic seconds), to bound memory."""
        for id in [one.id for one in self.endpoints.values() if one.used_at < before and not one.in_hand]:  # noqa: A001
            del self.endpoints[id]
            self._ready.pop(id, None)
