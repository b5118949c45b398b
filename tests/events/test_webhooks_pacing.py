"""Concurrent posts per endpoint: proven endpoints get their need, others a fair share."""

from uuid import UUID

from engine.base import ids
from engine.events.webhooks.pacing import BURST, FIRST, MAX_AHEAD, MAX_UNPROVEN_A_ROUND, EndpointPace, Shares
from engine.events.webhooks.types import FAILING, Claimed

EACH = 16


def endpoint(*, latency_s: float | None = None, failures: int = 0) -> EndpointPace:
    one = EndpointPace(ids.uuid7(), 0.0)
    if latency_s is not None:
        one.answered(delivered=True, took_s=latency_s, now=0.0)
    for _ in range(failures):
        one.answered(delivered=False, took_s=latency_s or 0.001, now=0.0)
    return one


def post(webhook: UUID) -> Claimed:
    return Claimed(webhook, ids.uuid7(), webhook, 1, 0, 0, *(None, None, None, None, None, None, None, None))


def room(one: EndpointPace, *, scarce: bool = False, now: float = 0.0) -> int:
    return one.room(now, each=EACH, scarce=scarce)


def shares_of(most: int, *endpoints: EndpointPace) -> Shares:
    shares = Shares(max_in_hand=most, each=EACH)
    for one in endpoints:
        shares.endpoints[one.id] = one
        shares.has_due(one)
    return shares


def next_rooms(shares: Shares, now: float = 0.0) -> dict[UUID, int]:
    return shares.next_rooms(now, max_endpoints=1_000, max_posts=10_000)


def take(shares: Shares, rooms: dict[UUID, int]) -> None:
    """Claim all there is room for, as if there were always more; the posts hang."""
    for webhook, count in rooms.items():
        shares.endpoints[webhook].in_flight += count
    shares.claimed(rooms, rooms)


def test_a_quick_endpoint_is_claimed_for_ahead_of_its_pace() -> None:
    assert room(endpoint(latency_s=0.005)) == MAX_AHEAD
    assert EACH < room(endpoint(latency_s=0.1)) < MAX_AHEAD
    assert room(endpoint(latency_s=0.9)) == EACH


def test_an_unknown_endpoint_begins_with_a_few() -> None:
    assert room(endpoint()) == FIRST
    assert room(endpoint(), scarce=True) == 1


def test_a_suspect_gets_its_posts_while_there_is_room_and_one_when_it_is_scarce() -> None:
    for one in (endpoint(latency_s=5.0), endpoint(latency_s=0.01, failures=FAILING)):
        assert one.suspect
        assert (room(one), room(one, scarce=True)) == (EACH, 1)


def test_one_hang_makes_a_suspect_and_quick_answers_unmake_it() -> None:
    one = endpoint(latency_s=0.005)
    one.answered(delivered=False, took_s=10.0, now=1.0)
    assert one.suspect
    for _ in range(20):
        one.answered(delivered=True, took_s=0.005, now=2.0)
    assert one.proven


def test_an_endpoint_that_refuses_at_once_is_held_to_a_slow_pace() -> None:
    one = endpoint()
    for _ in range(FAILING + BURST):
        one.answered(delivered=False, took_s=0.001, now=10.0)

    assert room(one, now=10.0) == 0
    assert room(one, now=13.5) == 3
    one.answered(delivered=True, took_s=0.001, now=14.0)
    assert room(one, now=14.0) == MAX_AHEAD


def test_another_url_starts_afresh() -> None:
    one = endpoint(latency_s=8.0, failures=5)
    one.moved_to("http://elsewhere.test/")

    assert not one.suspect
    assert room(one) == FIRST


def test_hanging_endpoints_never_fill_the_room_of_living_ones() -> None:
    dead = [endpoint(latency_s=10.0, failures=9) for _ in range(300)]
    shares = shares_of(200, *dead)
    for _ in range(20):
        rooms = next_rooms(shares)
        assert sum(rooms.values()) <= MAX_UNPROVEN_A_ROUND
        take(shares, rooms)
    assert shares.in_hand == 100  # half
    assert shares.unserved

    new, good = endpoint(), endpoint(latency_s=0.01)
    for one in (new, good):
        shares.endpoints[one.id] = one
        shares.has_due(one)
    rooms = next_rooms(shares)
    assert rooms[good.id] > EACH / 2
    assert rooms[new.id] >= 1


def test_endpoints_take_turns() -> None:
    dead = [endpoint(latency_s=10.0, failures=9) for _ in range(80)]
    shares = shares_of(100, *dead)
    served: list[UUID] = []
    for _ in range(100):
        rooms = next_rooms(shares)
        take(shares, rooms)
        served += rooms
        for webhook, count in rooms.items():
            shares.endpoints[webhook].in_flight -= count
            shares.ended(shares.endpoints[webhook], 1.0)

    assert {one.id for one in dead} == set(served)


def test_who_had_fewer_than_there_was_room_for_has_nothing_due() -> None:
    one = endpoint(latency_s=0.01)
    shares = shares_of(100, one)
    rooms = next_rooms(shares)
    shares.claimed(rooms, {one.id: 1})

    assert not one.due
    assert next_rooms(shares) == {}


def test_endpoints_not_heard_of_for_long_are_forgotten_but_not_while_busy() -> None:
    idle, busy = endpoint(), endpoint()
    busy.waiting.append((post(busy.id), 0.0))
    shares = shares_of(100, idle, busy)
    shares.forget(1.0)

    assert set(shares.endpoints) == {busy.id}
