"""Bounds of time that share a timer: they end what waits, and leave other cancellations alone. Turns of reads."""

import asyncio

import pytest

from engine.base.errors import ErrorType, Refusal
from engine.store import deadlines
from engine.store.deadlines import within
from engine.store.turns import Turns


async def test_what_waits_too_long_ends_in_a_time_out() -> None:
    with pytest.raises(TimeoutError), within(0.01):
        await asyncio.sleep(30)


async def test_what_comes_in_time_is_left_alone() -> None:
    with within(0.01):
        pass
    await asyncio.sleep(3 * deadlines.TICK_S)


async def test_the_inner_bound_ends_alone() -> None:
    with within(30):
        with pytest.raises(TimeoutError), within(0.01):
            await asyncio.sleep(30)
        await asyncio.sleep(0)


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def waits() -> None:
        with within(30):
            await asyncio.sleep(30)

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_passes_through() -> None:
    with pytest.raises(KeyError), within(30):
        raise KeyError("mine")


def test_each_loop_of_a_thread_has_its_own_watch() -> None:
    async def waits() -> None:
        with pytest.raises(TimeoutError), within(0.01):
            await asyncio.sleep(30)

    def loops() -> None:
        for _ in range(2):
            asyncio.run(waits())

    async def beside() -> None:
        await asyncio.gather(asyncio.to_thread(loops), waits())

    asyncio.run(beside())


async def test_an_owner_waits_for_its_own_turns_and_holds_nobody_else_up() -> None:
    turns, running, most = Turns(at_once=3, each=2), {"a": 0, "b": 0}, {"a": 0, "b": 0, "all": 0}
    free = asyncio.Event()

    async def read(owner: str) -> None:
        async with turns.of(owner):
            running[owner] += 1
            most[owner] = max(most[owner], running[owner])
            most["all"] = max(most["all"], sum(running.values()))
            await free.wait()
            running[owner] -= 1

    reads = [asyncio.create_task(read(owner)) for owner in ["a"] * 10 + ["b"] * 10]
    await asyncio.sleep(0.01)
    assert running == {"a": 2, "b": 1}
    reads[0].cancel()
    free.set()
    await asyncio.gather(*reads, return_exceptions=True)

    assert (most["a"], most["all"]) == (2, 3)
    assert vars(turns)["_own"] == {}, "what nobody waits for is not remembered"


async def test_who_gets_no_turn_in_time_hears_503_and_not_that_its_own_read_takes_long() -> None:
    turns = Turns(at_once=1, each=1)
    for first in ("other", "own"):
        async with turns.of(first):
            with pytest.raises(Refusal) as refused:
                async with asyncio.timeout(5), turns.of("own", wait_s=0.01):
                    pass
            assert refused.value.kind is ErrorType.UNAVAILABLE
        async with turns.of("own"):
            pass

    assert vars(turns)["_own"] == {}
