"""Lease and shards of a process, as the code that delivers reads them."""

import time

from shards.ownership import ShardOwnership


def test_a_lost_lease_takes_all_shards_and_the_member_id_with_it() -> None:
    ownership = ShardOwnership(16)
    ownership.renew(time.monotonic() + 60)
    ownership.add({1, 2, 3, 4})
    before = ownership.member_id
    assert (ownership.holds, ownership.fraction) == (True, 0.25)

    ownership.lose()

    assert (ownership.holds, ownership.shards) == (False, frozenset())
    assert ownership.member_id != before


def test_a_lease_ends_while_shards_are_still_to_be_given_up() -> None:
    ownership = ShardOwnership(16)
    ownership.renew(time.monotonic() + 60)
    ownership.add({1, 2})

    ownership.end_lease()
    ownership.remove({1})

    assert (ownership.holds, ownership.shards) == (False, frozenset({2}))
