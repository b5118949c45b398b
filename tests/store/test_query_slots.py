"""DNS queries in flight: names with an earlier answer never wait behind others."""

import asyncio

from engine.store.query_slots import QuerySlots


async def granted(tasks: list["asyncio.Task[None]"]) -> int:
    for _ in range(5):
        await asyncio.sleep(0)
    return sum(one.done() for one in tasks)


async def test_names_never_answered_leave_slots_for_the_others() -> None:
    slots = QuerySlots(total=4, kept=1)
    unknown = [asyncio.create_task(slots.acquire(known=False)) for _ in range(10)]
    assert await granted(unknown) == 3
    assert slots.is_crowded
    known = [asyncio.create_task(slots.acquire(known=True)) for _ in range(3)]
    assert await granted(known) == 1
    slots.release()
    assert await granted(known) == 2
    assert await granted(unknown) == 3
    for _ in range(3):
        slots.release()
    assert (await granted(known), await granted(unknown)) == (3, 4)
    for one in unknown:
        one.cancel()


async def test_who_is_cancelled_while_waiting_costs_no_slot() -> None:
    slots = QuerySlots(total=2, kept=1)
    await slots.acquire(known=False)
    waiting = [asyncio.create_task(slots.acquire(known=False)) for _ in range(3)]
    assert await granted(waiting) == 0
    waiting[0].cancel()
    slots.release()
    waiting[1].cancel()  # in the moment in which it was granted
    assert await granted(waiting) == 3
    slots.release()
    await slots.acquire(known=False)
    await slots.acquire(known=True)
