"""Pins, weights and measured load in the map: honoured, even, and still while nothing changes."""

import random

from hypothesis import given
from hypothesis import strategies as st

from shards.ring import SLACK, assign, burdens, costs, moves
from tests.shards.test_ring import MEMBERS

SEEDS = st.integers(0, 2**32).map(random.Random)
FLAT = st.floats(0.0, 100.0, allow_nan=False)


@given(st.integers(1, 200), MEMBERS, SEEDS, st.booleans())
def test_a_pinned_shard_belongs_to_its_target(
    shards: int, members: dict[str, float], rng: random.Random, loaded: bool
) -> None:
    current = {shard: rng.choice([*members, "gone"]) for shard in range(shards)}
    pins = {
        shard: rng.sample([*members, "gone"], k=rng.randint(1, min(2, len(members))))
        for shard in range(shards)
        if rng.random() < 0.4
    }
    loads = {shard: rng.random() ** 4 for shard in range(shards)} if loaded else None

    owners = assign(shards, members, current, pins=pins, loads=loads)

    assert sorted(owners) == list(range(shards))
    for shard, names in pins.items():
        living = [name for name in names if name in members]
        assert not living or owners[shard] in living
    assert assign(shards, members, owners, pins=pins, loads=loads) == owners


@given(st.integers(8, 200), MEMBERS)
def test_pins_beyond_a_members_share_cost_it_its_other_shards_only(shards: int, members: dict[str, float]) -> None:
    name = min(members)
    pins = {shard: [name] for shard in range(0, shards, 2)}

    owners = assign(shards, members, {}, pins=pins)

    assert {shard for shard, owner in owners.items() if owner == name} >= set(pins)
    if shards // 2 > shards * members[name] / sum(members.values()) + 1 and len(members) > 1:
        assert {shard for shard, owner in owners.items() if owner == name} == set(pins)


@given(st.integers(1, 100), MEMBERS, st.data())
def test_balancing_by_load_brings_members_near_their_share_where_moves_help(
    shards: int, members: dict[str, float], data: st.DataObject
) -> None:
    loads = dict(enumerate(data.draw(st.lists(FLAT, min_size=shards, max_size=shards))))

    owners = assign(shards, members, {}, loads=loads)

    assert sorted(owners) == list(range(shards))
    cost = costs(shards, loads)
    carried = burdens(members, owners, cost)
    busiest, idlest = max(carried, key=lambda name: carried[name]), min(carried, key=lambda name: carried[name])
    if carried[busiest] > 1 + SLACK:
        share = members[idlest] / sum(members.values())
        assert all(
            carried[idlest] + cost[shard] / share >= carried[busiest] - 1e-6
            for shard, owner in owners.items()
            if owner == busiest and sum(loads.values()) > 0
        )


@given(st.integers(1, 60), MEMBERS, st.data(), SEEDS)
def test_moves_made_one_by_one_converge(
    shards: int, members: dict[str, float], data: st.DataObject, rng: random.Random
) -> None:
    """As members do it: some shards are still on their way while the map is reckoned anew."""
    loads = dict(enumerate(data.draw(st.lists(FLAT, min_size=shards, max_size=shards))))
    current = {shard: rng.choice(sorted(members)) for shard in range(shards)}

    for _ in range(4 * shards + 4):
        wanted = moves(current, assign(shards, members, current, loads=loads))
        if not wanted:
            break
        shard = rng.choice(sorted(wanted))
        if current.get(shard) is not None and rng.random() < 0.5:
            del current[shard]  # handed over, and not yet taken
        else:
            current[shard] = wanted[shard][1]

    assert moves(current, assign(shards, members, current, loads=loads)) == {}


def test_loads_within_the_slack_move_nothing() -> None:
    even = assign(16, {"a": 1, "b": 1}, {})
    loads = {shard: 1.1 if owner == "a" else 0.9 for shard, owner in even.items()}

    assert assign(16, {"a": 1, "b": 1}, even, loads=loads) == even


def test_the_owner_of_one_busy_shard_releases_its_other_shards() -> None:
    even = assign(64, {"a": 1, "b": 1}, {})
    hot = next(shard for shard, owner in even.items() if owner == "a")
    loads = dict.fromkeys(range(64), 1.0) | {hot: 60.0}

    after = assign(64, {"a": 1, "b": 1}, even, loads=loads)

    changed = moves(even, after)
    assert {owner for _, owner in changed.values()} == {"b"}
    assert hot not in changed
    carried = burdens({"a": 1, "b": 1}, after, costs(64, loads))
    assert max(carried.values()) <= 1 + SLACK


def test_a_heavier_member_carries_more_of_the_load() -> None:
    loads = dict.fromkeys(range(64), 1.0)

    owners = assign(64, {"a": 3.0, "b": 1.0}, {}, loads=loads)

    assert 44 <= sum(owner == "a" for owner in owners.values()) <= 52


def test_an_assignment_by_load_is_stable() -> None:
    members, loads = {"0": 1.0, "00": 2.0, "1": 0.5}, {0: 0.41}
    owners = assign(1, members, {0: "1"}, loads=loads)
    assert assign(1, members, owners, loads=loads) == owners
