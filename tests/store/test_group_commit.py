"""Group commit: batches, and the error that each waiter gets."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from engine.store.group_commit import GroupCommit, Overloaded
from tests.harness.patience import PATIENCE_S

INTERVAL_S = 1.0


class Flushes:
    """A flush that doubles numbers, can be held back, and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.free = asyncio.Event()
        self.free.set()

    async def __call__(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        await self.free.wait()
        if 13 in items:
            raise ValueError("13 can't be stored")
        if 7 in items:
            raise KeyError("a bug")
        return [ArithmeticError(f"{item} refused") if item < 0 else 2 * item for item in items]


@pytest.fixture
async def flushes() -> Flushes:
    return Flushes()


def group(flushes: Flushes, *, max_items: int = 128, max_waiting: int = 10_000) -> GroupCommit[int, int]:
    return GroupCommit(flushes, max_items=max_items, max_waiting=max_waiting, bad_data=(ValueError,))


async def test_a_single_item_flushes_at_once(flushes: Flushes) -> None:
    assert await group(flushes).submit(4) == 8

    assert flushes.batches == [[4]]


async def test_items_gather_while_a_flush_is_in_flight(flushes: Flushes) -> None:
    commit = group(flushes)
    flushes.free.clear()
    first = commit.enqueue(1)
    await asyncio.sleep(0)
    later = [commit.enqueue(number) for number in range(2, 6)]
    assert commit.waiting == 4
    flushes.free.set()

    assert await asyncio.gather(first, *later) == [2, 4, 6, 8, 10]
    assert flushes.batches == [[1], [2, 3, 4, 5]]


async def test_batches_are_bounded_and_keep_the_order(flushes: Flushes) -> None:
    commit = group(flushes, max_items=3)

    assert await asyncio.gather(*[commit.submit(number) for number in (1, 2, 3, 4, 5)]) == [2, 4, 6, 8, 10]
    assert flushes.batches == [[1, 2, 3], [4, 5]]


async def test_a_refused_item_does_not_touch_the_others(flushes: Flushes) -> None:
    commit = group(flushes)

    results = await asyncio.gather(*[commit.submit(number) for number in (1, -2, 3)], return_exceptions=True)

    assert results[0] == 2
    assert isinstance(results[1], ArithmeticError)
    assert results[2] == 6


async def test_an_item_that_cannot_be_stored_is_found_and_fails_alone(flushes: Flushes) -> None:
    commit = group(flushes)

    results = await asyncio.gather(*[commit.submit(number) for number in (1, 13, 3)], return_exceptions=True)

    assert (results[0], results[2]) == (2, 6)
    assert isinstance(results[1], ValueError)
    assert flushes.batches == [[1, 13, 3], [1], [13], [3]]


async def test_a_fault_of_the_flush_reaches_every_waiter_and_the_next_flush_works(flushes: Flushes) -> None:
    commit = group(flushes)

    results = await asyncio.gather(*[commit.submit(number) for number in (1, 7)], return_exceptions=True)

    assert all(isinstance(result, KeyError) for result in results)
    assert await commit.submit(5) == 10


async def test_a_waiter_that_goes_away_in_mid_flush_harms_nobody(flushes: Flushes) -> None:
    commit = group(flushes)
    flushes.free.clear()
    leaving, staying = (asyncio.create_task(commit.submit(number)) for number in (1, 2))
    await asyncio.sleep(0.01)
    leaving.cancel()
    flushes.free.set()

    assert await staying == 4
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert flushes.batches == [[1, 2]]  # its item was under way already


async def test_a_waiter_that_goes_away_before_the_flush_withdraws_its_item(flushes: Flushes) -> None:
    commit = group(flushes)
    flushes.free.clear()
    first = commit.enqueue(1)
    await asyncio.sleep(0.01)
    leaving = asyncio.create_task(commit.submit(2))
    await asyncio.sleep(0.01)
    leaving.cancel()
    flushes.free.set()
    await first
    await commit.idle()

    assert flushes.batches == [[1]]


async def test_too_much_waiting_is_refused_at_once(flushes: Flushes) -> None:
    commit = group(flushes, max_waiting=2)
    flushes.free.clear()
    first = commit.enqueue(1)
    await asyncio.sleep(0)
    waiting = [commit.enqueue(2), commit.enqueue(3)]
    with pytest.raises(Overloaded):
        commit.enqueue(4)
    with pytest.raises(Overloaded):
        await commit.submit(5)
    flushes.free.set()

    assert await asyncio.gather(first, *waiting) == [2, 4, 6]
    assert await commit.submit(4) == 8


async def test_idle_is_immediate_without_work_and_waits_with_it(flushes: Flushes) -> None:
    commit = group(flushes)
    await commit.idle()
    flushes.free.clear()
    futures = [commit.enqueue(1)]
    idle = asyncio.create_task(commit.idle())
    await asyncio.sleep(0.01)
    futures.append(commit.enqueue(2))
    await asyncio.sleep(0.01)
    assert not idle.done()
    flushes.free.set()
    await idle

    assert all(future.done() for future in futures)


async def test_a_least_interval_gathers_under_load_and_costs_the_first_nothing(flushes: Flushes) -> None:
    commit: GroupCommit[int, int] = GroupCommit(flushes, min_interval_s=INTERVAL_S)
    began = time.monotonic()
    assert await commit.submit(1) == 2
    first_s = time.monotonic() - began

    second = commit.enqueue(2)
    await asyncio.sleep(0)
    third = commit.enqueue(3)
    assert list(await asyncio.gather(second, third)) == [4, 6]

    assert flushes.batches == [[1], [2, 3]]
    assert first_s < INTERVAL_S * 0.9 <= time.monotonic() - began


async def test_a_full_batch_does_not_wait_for_the_interval(flushes: Flushes) -> None:
    commit: GroupCommit[int, int] = GroupCommit(flushes, max_items=2, min_interval_s=600)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*[commit.submit(number) for number in (1, 2, 3, 4)])


# -- sets -------------------------------------------------------------------------------------


async def test_a_set_is_answered_in_its_order_with_refusals_as_values(flushes: Flushes) -> None:
    commit = group(flushes)

    found = await commit.submit_set([1, -2, 3])

    assert [str(one) for one in found] == ["2", "-2 refused", "6"]
    assert flushes.batches == [[1, -2, 3]]
    assert await commit.submit_set([]) == []


async def test_a_set_is_never_divided(flushes: Flushes) -> None:
    commit = group(flushes, max_items=4)
    flushes.free.clear()
    first = commit.enqueue(0)
    await asyncio.sleep(0)
    waiting = [
        asyncio.create_task(commit.submit_set([1, 2, 3])),
        asyncio.create_task(commit.submit_set([4, 5])),  # no room left beside the set before
        asyncio.create_task(commit.submit_set(list(range(20, 29)))),  # more than any batch has room for
    ]
    await asyncio.sleep(0)
    single = commit.enqueue(6)
    assert commit.waiting == 15
    flushes.free.set()

    assert await first == 0
    assert [await one for one in waiting] == [[2, 4, 6], [8, 10], [2 * n for n in range(20, 29)]]
    assert await single == 12
    assert flushes.batches == [[0], [1, 2, 3], [4, 5], list(range(20, 29)), [6]]
    assert commit.waiting == 0


async def test_sets_and_single_items_share_a_flush(flushes: Flushes) -> None:
    commit = group(flushes)
    flushes.free.clear()
    first = commit.enqueue(0)
    await asyncio.sleep(0)
    pair = asyncio.create_task(commit.submit_set([1, 2]))
    await asyncio.sleep(0)
    single = commit.enqueue(3)
    flushes.free.set()

    assert (await first, await pair, await single) == (0, [2, 4], 6)
    assert flushes.batches == [[0], [1, 2, 3]]


async def test_a_set_next_to_what_cannot_be_stored_stays_whole(flushes: Flushes) -> None:
    commit = group(flushes)
    flushes.free.clear()
    first = commit.enqueue(0)
    await asyncio.sleep(0)
    pair = asyncio.create_task(commit.submit_set([1, 2]))
    await asyncio.sleep(0)
    bad = commit.enqueue(13)
    flushes.free.set()

    assert (await first, await pair) == (0, [2, 4])
    with pytest.raises(ValueError, match="can't be stored"):
        await bad
    assert flushes.batches == [[0], [1, 2, 13], [1, 2], [13]]


async def test_what_cannot_be_stored_fails_alone_in_its_set(flushes: Flushes) -> None:
    found = await group(flushes).submit_set([1, 13, 3, -4])

    assert [str(one) for one in found] == ["2", "13 can't be stored", "6", "-4 refused"]
    assert flushes.batches == [[1, 13, 3, -4], [1], [13], [3], [-4]]


async def test_a_fault_of_the_flush_is_raised_for_the_whole_set(flushes: Flushes) -> None:
    with pytest.raises(KeyError):
        await group(flushes).submit_set([1, 7])


async def test_a_set_that_is_withdrawn_is_not_flushed(flushes: Flushes) -> None:
    commit = group(flushes, max_waiting=5)
    flushes.free.clear()
    first = commit.enqueue(0)
    await asyncio.sleep(0.01)
    leaving = asyncio.create_task(commit.submit_set([1, 2]))
    await asyncio.sleep(0.01)
    with pytest.raises(Overloaded):
        await commit.submit_set([1, 2, 3, 4])
    leaving.cancel()
    flushes.free.set()
    await first
    await commit.idle()

    assert flushes.batches == [[0]]
    assert commit.waiting == 0


async def test_items_without_a_result_are_known_while_a_flush_lasts(flushes: Flushes) -> None:
    commit = group(flushes, max_items=2)
    flushes.free.clear()
    futures = [commit.enqueue(number) for number in (1, 2, 3)]
    async with asyncio.timeout(PATIENCE_S):
        while not commit.flushing_s:
            await asyncio.sleep(0)

    assert commit.unfinished() == [1, 2, 3]
    flushes.free.set()
    await asyncio.gather(*futures)
    await commit.idle()
    assert commit.unfinished() == []
    assert commit.flushing_s == 0
