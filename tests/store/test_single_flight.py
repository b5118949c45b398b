"""The single-flight cache refreshes used entries before they expire, without waits."""

import asyncio

import pytest
from msgspec import Struct

from engine.store.single_flight import SingleFlightCache


class Answer(Struct):
    """The number of a computation."""

    number: int
    until: float
    failed: bool = False


class Maker:
    """Makes answers that are good for 100 s; the clock stands still but for `now`."""

    def __init__(self, stale_s: float = 0.0) -> None:
        self.now = 0.0
        self.made = 0
        self.fails = False
        self.shared: SingleFlightCache[str, Answer] = SingleFlightCache(
            self._make, 10, lambda: self.now, lambda answer: answer.failed, stale_s
        )

    async def _make(self, _: str) -> Answer:
        self.made += 1
        return Answer(self.made, self.now + 100, self.fails)

    async def at(self, now: float) -> int:
        """The number of the answer that a caller gets then; what it began is done when this returns."""
        self.now = now
        found = await self.shared.get("key")
        for _ in range(3):
            await asyncio.sleep(0)
        return found.number


async def test_an_answer_in_use_is_made_anew_before_it_expires_and_nobody_waits() -> None:
    maker = Maker()
    assert [await maker.at(now) for now in (0, 89)] == [1, 1]
    assert maker.made == 1
    assert await maker.at(91) == 1
    assert maker.made == 2
    assert await maker.at(150) == 2


@pytest.mark.parametrize(("stale_s", "fails", "later"), [(0.0, False, 101), (30, False, 131), (30, True, 101)])
async def test_what_has_expired_is_not_served_beyond_the_stale_time(
    stale_s: float, later: float, *, fails: bool
) -> None:
    maker = Maker(stale_s)
    maker.fails = fails
    assert [await maker.at(now) for now in (0, later)] == [1, 2]


async def test_a_failure_never_takes_the_place_of_what_is_good() -> None:
    maker = Maker()
    await maker.at(0)
    maker.fails = True
    assert [await maker.at(now) for now in (91, 91.5, 93)] == [1, 1, 1]
    assert maker.made == 3  # not for every caller
    assert await maker.at(101) == 4


async def test_an_expired_answer_serves_a_while_longer_during_its_refresh() -> None:
    maker = Maker(stale_s=30)
    assert [await maker.at(now) for now in (0, 129, 130)] == [1, 1, 2]
    assert maker.made == 2


async def test_an_expired_answer_outlives_a_failed_refresh_within_the_stale_time() -> None:
    maker = Maker(stale_s=30)
    await maker.at(0)
    maker.fails = True
    assert [await maker.at(now) for now in (110, 120)] == [1, 1]
