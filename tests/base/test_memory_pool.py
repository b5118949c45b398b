"""The memory pool for content: shares, precedence of small owners, and full release."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import ErrorType, Refusal
from engine.base.memory_pool import MemoryPool, Reservation


def pool_of(total: int = 100) -> MemoryPool:
    return MemoryPool.for_accounts(total, largest=10)


def arriving(pool: MemoryPool, owner: str, size: int, part: str | None = None) -> Reservation:
    reservation = pool.open(owner, part)
    reservation.begin(on_revoke=lambda: None)
    reservation.take(size)
    return reservation


def refusal(reservation: Reservation, size: int) -> ErrorType:
    with pytest.raises(Refusal) as caught:
        reservation.take(size)
    return caught.value.kind


def test_a_key_gets_half_and_an_account_three_quarters() -> None:
    pool = pool_of()
    arriving(pool, "a", 50, "key 1")
    assert refusal(pool.open("a", "key 1"), 1) is ErrorType.RATE_LIMITED
    second = pool.open("a", "key 2")
    second.take(25)

    assert refusal(second, 1) is ErrorType.RATE_LIMITED
    pool.open("b").take(25)


def test_one_content_of_the_largest_size_always_fits_into_a_share() -> None:
    pool = MemoryPool.for_accounts(100, largest=90)
    pool.open("a", "key").take(90)
    assert pool.held == 90


def test_a_full_pool_takes_from_the_owner_that_holds_the_most() -> None:
    pool = pool_of()
    most, some = arriving(pool, "a", 50, "key 1"), arriving(pool, "b", 30)
    arriving(pool, "c", 30)

    assert (most.revoked, some.revoked, pool.held) == (True, False, 60)
    assert refusal(most, 1) is ErrorType.UNAVAILABLE
    with pytest.raises(Refusal):
        most.complete()


def test_who_holds_as_much_as_the_others_gets_no_more_of_a_full_pool() -> None:
    pool = pool_of()
    held = [arriving(pool, owner, 25) for owner in "abcd"]

    assert refusal(held[0], 1) is ErrorType.UNAVAILABLE
    assert not any(one.revoked for one in held)


def test_content_that_has_arrived_is_left_alone() -> None:
    pool = pool_of()
    whole = arriving(pool, "a", 50, "key 1")
    whole.complete()
    arriving(pool, "a", 25, "key 2").complete()

    assert refusal(pool.open("b"), 26) is ErrorType.UNAVAILABLE
    assert not whole.revoked


def test_an_owner_whose_content_has_arrived_protects_no_other_that_still_sends() -> None:
    pool = pool_of()
    arriving(pool, "a", 50, "key 1").complete()
    pool.open("a").begin(on_revoke=lambda: None)  # begun, and nothing of it has come
    sending = arriving(pool, "b", 40)
    arriving(pool, "c", 20)

    assert (sending.revoked, pool.held) == (True, 70)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.sampled_from(["complete", "release", "-"]))))
def test_what_is_held_is_the_sum_of_all_reservations_and_ends_at_nothing(steps: list[tuple[str, int, str]]) -> None:
    pool = pool_of()
    opened: list[Reservation] = []
    for owner, size, end in steps:
        reservation = pool.open(owner, f"{owner} {size % 2}")
        reservation.begin(on_revoke=lambda: None)
        opened.append(reservation)
        try:
            reservation.take(size)
            if end == "complete":
                reservation.complete()
        except Refusal:
            reservation.release()
        if end == "release":
            reservation.release()
        assert pool.held == sum(one.octets for one in opened) <= pool.total
    for reservation in opened:
        reservation.release()
        reservation.release()

    assert (pool.held, pool._by_owner, pool._by_part, pool._revocable) == (0, {}, {}, {})
