"""How many posts an endpoint may have in hand: what one process knows of each endpoint, and the shares. No I/O.

Endpoints are of three kinds. A proven one answered quickly the last times; it is served as fast as it takes. One
that was slow or failing (a suspect) shares half of the process's posts with its like, and one that is not known yet
has a quarter besides; where its share grows scarce each gets one at a time, in turn. So the posts that hang on dead
endpoints never take the room of living ones, nor of new ones.
"""

from collections import deque
from uuid import UUID

from engine.areas.webhooks.types import Claimed

FAILING = 3  # failures in a row
QUICK_S = 1.0
FIRST = 4  # to one that is not known yet: its first answer tells
AHEAD_S = 0.25  # of posts claimed ahead of a proven endpoint's pace, so that a claim is worth its round trip
MAX_AHEAD = 128
SUSPECTS, UNPROVEN = 0.5, 0.75  # of all posts: those of suspects, and of suspects and unknown ones together
SCARCE = 0.5  # of such a share in use: from here on one at a time
UNPROVEN_A_TURN = 16  # posts: hundreds of hanging ones begun at once would all time out at once, for ever
_WEIGHT = 0.2  # of the newest answer in the mean time to answer

# A dead endpoint that refuses at once costs an attempt's CPU each time; so many in a burst, then one a second.
BURST, REFILL_PER_S = 200, 1.0


class EndpointPace:
    """What one process knows of one endpoint. Times are monotonic seconds."""

    __slots__ = ("due", "failing_since", "failures", "id", "in_flight", "latency_s", "tokens", "tokens_at", "url",
                 "used_at", "waiting")  # fmt: skip

    def __init__(self, id: UUID, now: float) -> None:  # noqa: A002 - the resource's own word
        self.id = id
        self.url: str | None = None
        self.due = False  # more is believed to be due
        self.in_flight = 0
        self.waiting: deque[tuple[Claimed, float]] = deque()  # claimed, and when
        self.latency_s: float | None = None
        self.failures = 0  # in a row
        self.failing_since: float | None = None
        self.tokens, self.tokens_at = float(BURST), now
        self.used_at = now

    @property
    def in_hand(self) -> int:
        """Posts claimed and not yet ended."""
        return self.in_flight + len(self.waiting)

    @property
    def proven(self) -> bool:
        """It answers quickly."""
        return self.latency_s is not None and self.latency_s < QUICK_S and self.failures < FAILING

    @property
    def suspect(self) -> bool:
        """It is known, and not to be good."""
        return self.latency_s is not None and not self.proven

    def moved_to(self, url: str | None) -> None:
        """What was learned is of the URL: another one starts afresh."""
        if url != self.url:
            self.url = url
            self.latency_s, self.failures, self.failing_since = None, 0, None
            self.tokens = float(BURST)

    def answered(self, *, delivered: bool, took_s: float, now: float) -> None:
        """Learn from an attempt."""
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
        """Posts it may have in hand; at most `each` of them in flight."""
        if self.proven:
            assert self.latency_s is not None
            return max(each, min(MAX_AHEAD, int(each * AHEAD_S / max(self.latency_s, 0.001))))
        if scarce:
            return 1
        return each if self.suspect else min(each, FIRST)

    def room(self, now: float, *, each: int, scarce: bool) -> int:
        """Posts that may be claimed for it now."""
        room = self.capacity(each=each, scarce=scarce) - self.in_hand
        if self.failures >= FAILING:
            room = min(room, int(self._refilled(now)))
        return max(0, room)

    def _refilled(self, now: float) -> float:
        return min(float(BURST), self.tokens + (now - self.tokens_at) * REFILL_PER_S)


class _Left:
    """What is left of the shares of those not proven."""

    def __init__(self, most: int, suspects: int, unproven: int) -> None:
        self._most = most
        self._suspects, self._unproven = suspects, unproven

    def of(self, endpoint: EndpointPace) -> tuple[int, bool]:
        """How many more its kind may have in hand, and whether that is scarce."""
        if endpoint.proven:
            return self._most, False
        used, share = self._unproven, self._most * UNPROVEN
        if endpoint.suspect:
            used, share = self._suspects, self._most * SUSPECTS
        return int(share) - used, used >= share * SCARCE

    def take(self, endpoint: EndpointPace, room: int) -> None:
        """So many more go to one that is not proven."""
        self._unproven += room
        if endpoint.suspect:
            self._suspects += room


class Shares:
    """Who is claimed for next: endpoints in turn, within `most` posts in hand and `each` in flight to one."""

    def __init__(self, *, most: int, each: int) -> None:
        self._most = most
        self.each = each
        self.endpoints: dict[UUID, EndpointPace] = {}
        self._busy: dict[UUID, EndpointPace] = {}  # with posts in hand
        self._ready: dict[UUID, EndpointPace] = {}  # with something due and room for it; the order is the turn
        self.hungry = False  # somebody would have been served had there been room for all

    @property
    def in_hand(self) -> int:
        """All posts claimed and not yet ended."""
        return sum(one.in_hand for one in self._busy.values())

    def known(self, id: UUID, now: float) -> EndpointPace:  # noqa: A002 - as above
        """The endpoint, from now on remembered."""
        found = self.endpoints.get(id)
        if found is None:
            found = self.endpoints[id] = EndpointPace(id, now)
        return found

    def has_due(self, endpoint: EndpointPace) -> None:
        """Posts to it are due; it gets its turn behind those that have theirs already."""
        endpoint.due = True
        self._ready.setdefault(endpoint.id, endpoint)

    def next_rooms(self, now: float, *, most_endpoints: int, most_posts: int) -> dict[UUID, int]:
        """Whom to claim for and how many; those chosen go to the end of the turn by `claimed`."""
        left = min(most_posts, self._most - self.in_hand)
        shares = self._shares_left()
        unproven_left = UNPROVEN_A_TURN
        rooms: dict[UUID, int] = {}
        full: list[UUID] = []
        self.hungry = False
        for endpoint in self._ready.values():
            if left <= 0 or len(rooms) >= most_endpoints:
                self.hungry = True
                break
            share, scarce = shares.of(endpoint)
            if not endpoint.proven:
                share = min(share, unproven_left)
            if share <= 0:
                self.hungry = True
                continue
            room = min(left, share, endpoint.room(now, each=self.each, scarce=scarce))
            if not endpoint.proven:
                shares.take(endpoint, room)
                unproven_left -= room
            left -= room
            if room:
                rooms[endpoint.id] = room
            else:
                full.append(endpoint.id)  # its next finished post, or the next look, brings it back
        for id in full:  # noqa: A001 - as above
            del self._ready[id]
        return rooms

    def _shares_left(self) -> "_Left":
        unproven = [one for one in self._busy.values() if not one.proven]
        suspects = sum(one.in_hand for one in unproven if one.suspect)
        return _Left(self._most, suspects, sum(one.in_hand for one in unproven))

    def claimed(self, rooms: dict[UUID, int], found: dict[UUID, int]) -> None:
        """So many were found for each: who had fewer than there was room for has nothing due any more."""
        for id, room in rooms.items():  # noqa: A001 - as above
            self._ready.pop(id, None)
            endpoint = self.endpoints[id]
            endpoint.due = found.get(id, 0) >= room
            if id in found:
                self._busy[id] = endpoint

    def ended(self, endpoint: EndpointPace, now: float) -> bool:
        """A post to it has ended; True when it is worth claiming again."""
        if not endpoint.in_hand:
            self._busy.pop(endpoint.id, None)
        if endpoint.due and endpoint.id not in self._ready:
            room = endpoint.room(now, each=self.each, scarce=False)
            if 4 * room >= endpoint.capacity(each=self.each, scarce=False) or not endpoint.in_hand:
                self._ready[endpoint.id] = endpoint
                return True
        return self.hungry

    def forget(self, before: float) -> None:
        """Drop endpoints not used since, so that memory does not grow with every endpoint there ever was."""
        for id in [one.id for one in self.endpoints.values() if one.used_at < before and not one.in_hand]:  # noqa: A001
            del self.endpoints[id]
            self._ready.pop(id, None)
