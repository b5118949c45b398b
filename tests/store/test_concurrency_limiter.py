"""The concurrency limiter refuses clients with too many own requests, and no others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from engine.base.errors import ErrorType, Refusal
from engine.store.concurrency_limiter import ConcurrencyLimiter

SOON_S = 0.05


@contextlib.asynccontextmanager
async def holding(turns: ConcurrencyLimiter, *owners: str) -> AsyncIterator[None]:
    """These owners are at work, one turn each time they are named."""
    async with contextlib.AsyncExitStack() as held:
        for owner in owners:
            await held.enter_async_context(turns.of(owner))
        yield


async def refused(turns: ConcurrencyLimiter, owner: str) -> Refusal:
    with pytest.raises(Refusal) as found:
        async with turns.of(owner, wait_s=SOON_S):
            pass
    return found.value


@pytest.mark.parametrize(
    ("at_work", "kind"),
    [
        (("ann", "ann"), ErrorType.RATE_LIMITED),
        (("ann", "ann", "bob"), ErrorType.RATE_LIMITED),
        (("bob", "bob", "eve"), ErrorType.UNAVAILABLE),
        (("ann", "bob", "bob"), ErrorType.UNAVAILABLE),
    ],
)
async def test_the_refusal_says_whose_work_is_waited_for(at_work: tuple[str, ...], kind: ErrorType) -> None:
    turns = ConcurrencyLimiter("searches", at_once=3, each=2)
    async with holding(turns, *at_work):
        refusal = await refused(turns, "ann")
    async with turns.of("ann", wait_s=SOON_S):  # once they have ended there is room again
        pass

    assert refusal.kind is kind
    assert (refusal.retry_after_s or 0) >= 1
    assert ("searches" in refusal.message) == (kind is ErrorType.RATE_LIMITED)


async def test_an_owner_waits_for_its_own_turns_and_holds_nobody_else_up() -> None:
    turns, running, most = (
        ConcurrencyLimiter("searches", at_once=3, each=2),
        {"a": 0, "b": 0},
        {"a": 0, "b": 0, "all": 0},
    )
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
    assert vars(turns)["_owners"] == {}, "what nobody waits for is not remembered"


async def test_who_waits_behind_own_work_that_waits_for_others_is_not_blamed() -> None:
    turns = ConcurrencyLimiter("searches", at_once=2, each=1)
    async with holding(turns, "bob", "eve"):
        first = asyncio.create_task(refused(turns, "ann"))
        second = asyncio.create_task(refused(turns, "ann"))
        found = {(await first).kind, (await second).kind}

    assert found == {ErrorType.UNAVAILABLE}


async def test_the_wait_grows_with_what_the_owner_has_asked_for() -> None:
    turns = ConcurrencyLimiter("searches", at_once=3, each=1)
    async with holding(turns, "ann"):
        await asyncio.sleep(1.0)
        found = await asyncio.gather(*(refused(turns, "ann") for _ in range(5)))

    waits = [one.retry_after_s or 0 for one in found]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] >= 5 * waits[-1] - 5 > 0
