"""Who owns which shard: everyone their share, and as few moves as that allows."""

import random
from collections import Counter
from math import ceil, floor

from hypothesis import given
from hypothesis import strategies as st

from shards.ring import assign, moves

NAMES = st.text("abcdef0123456789-", min_size=1, max_size=8)
MEMBERS = st.dictionaries(NAMES, st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0]), min_size=1, max_size=9)


@given(st.integers(1, 300), MEMBERS, st.randoms(use_true_random=False))
def test_every_shard_has_an_owner_and_every_owner_its_share(
    shards: int, members: dict[str, float], rng: random.Random
) -> None:
    current = {shard: rng.choice([*members, "gone"]) for shard in range(shards) if rng.random() < 0.8}
    owners = assign(shards, members, current)
    assert sorted(owners) == list(range(shards))
    counts = Counter(owners.values())
    total = sum(members.values())
    for name, weight in members.items():
        share = shards * weight / total
        assert floor(share + 1e-9) <= counts[name] + 1e-9
        assert counts[name] <= ceil(share - 1e-9)


@given(st.integers(1, 300), MEMBERS, st.randoms(use_true_random=False))
def test_the_assignment_depends_only_on_its_inputs(shards: int, members: dict[str, float], rng: random.Random) -> None:
    current = {shard: rng.choice([*members, "gone"]) for shard in range(shards)}
    shuffled_members = list(members.items())
    shuffled_current = list(current.items())
    rng.shuffle(shuffled_members)
    rng.shuffle(shuffled_current)
    assert assign(shards, members, current) == assign(shards, dict(shuffled_members), dict(shuffled_current))


@given(st.integers(1, 300), MEMBERS)
def test_a_repeated_assignment_moves_no_shard(shards: int, members: dict[str, float]) -> None:
    owners = assign(shards, members, {})
    assert assign(shards, members, owners) == owners


@given(st.integers(1, 300), MEMBERS, st.randoms(use_true_random=False))
def test_a_departure_moves_only_free_shards_but_for_rounding(
    shards: int, members: dict[str, float], rng: random.Random
) -> None:
    before = assign(shards, members, {})
    gone = rng.choice(sorted(members))
    rest = {name: weight for name, weight in members.items() if name != gone}
    if not rest:
        assert assign(shards, rest, before) == {}
        return
    after = assign(shards, rest, before)
    held, wanted = Counter(before.values()), Counter(after.values())
    surplus = sum(max(0, held[name] - wanted[name]) for name in rest)
    assert len(moves(before, after)) == held[gone] + surplus
    assert surplus <= len(rest)


@given(st.integers(1, 300), MEMBERS)
def test_arrival_moves_only_to_the_newcomer_but_for_rounding(shards: int, members: dict[str, float]) -> None:
    before = assign(shards, members, {})
    after = assign(shards, {**members, "newcomer": 1.0}, before)
    to_others = [shard for shard, (_, owner) in moves(before, after).items() if owner != "newcomer"]
    assert len(to_others) <= len(members)


def test_equal_members_exchange_no_shards() -> None:
    before = assign(256, {"a": 1, "b": 1, "c": 1}, {})
    after = assign(256, {"a": 1, "b": 1, "c": 1, "d": 1}, before)
    assert {owner for _, owner in moves(before, after).values()} == {"d"}
    assert len(moves(before, after)) == 64
    back = assign(256, {"a": 1, "b": 1, "c": 1}, after)
    assert set(moves(after, back)) == {shard for shard, owner in after.items() if owner == "d"}


def test_a_member_of_weight_zero_owns_no_shard_and_without_members_no_shard_is_assigned() -> None:
    before = assign(16, {"a": 1, "b": 1}, {})
    assert set(assign(16, {"a": 1, "b": 0}, before).values()) == {"a"}
    assert assign(16, {}, before) == {}
    assert assign(0, {"a": 1}, {}) == {}
