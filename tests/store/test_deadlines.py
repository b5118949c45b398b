"""Deadlines that share a timer: they end waits and keep other cancellations."""

import asyncio

import pytest

from engine.store import deadlines
from engine.store.deadlines import within


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
