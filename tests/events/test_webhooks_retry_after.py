"""Receivers whose Retry-After postpones the next attempt, if their endpoint honors it."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import clock
from engine.events.webhooks import rules
from engine.events.webhooks import service as webhooks_service
from engine.events.webhooks.post_options import PostOptions
from engine.events.webhooks.retry_after import MAX_POSTPONED_S, postponed, seconds
from tests.harness.accounts import PEPPER
from tests.harness.receiver import Endpoint, Receiver, World

LADDER_S = (10.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0, 43200.0)
NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (503, "120", 120),
        (429, " 120 ", 120),
        (503, "0", 0),
        (503, "9" * 40, float("9" * 40)),
        (503, "9" * 41, 0),
        (503, format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90),
        (503, format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0),
        (503, "Monday, 23-Nov-26 09:31:00 GMT", 60),
        (503, "Mon Nov 23 09:31:00 2026", 60),
        (503, "-1", 0),
        (503, "1.5", 0),
        (503, "\u0661\u0662", 0),
        (503, "soon", 0),
        (503, "Mon, 99 Nov 2026 99:99:99 GMT", 0),
        (503, "", 0),
        (503, None, 0),
        (500, "120", 0),
        (404, "120", 0),
        (200, "120", 0),
    ],
)
def test_seconds_and_dates_of_a_429_or_503_are_read(status: int, value: str | None, expected: float) -> None:
    assert seconds(status, value, NOW) == expected


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(value: str) -> None:
    assert seconds(503, value, NOW) >= 0


@given(
    st.lists(st.floats(0, 100_000), min_size=8, max_size=8), st.sampled_from([LADDER_S, LADDER_S[:4], (7200.0,) * 7])
)
def test_no_attempt_is_before_its_schedule_or_after_the_last_of_it(
    asked: list[float], ladder_s: tuple[float, ...]
) -> None:
    schedule = rules.retry_schedule(ladder_s)
    at_s, late_s = 0.0, 0
    for made, due_s in enumerate(accumulate(ladder_s), start=1):
        step_s = rules.wait_after(503, made, schedule, jitter=0.0)
        assert step_s == ladder_s[made - 1]
        found = postponed(step_s, made, schedule, asked_s=asked[made - 1], late_s=late_s)
        assert found.wait_s >= min(step_s, MAX_POSTPONED_S)
        assert found.wait_s <= max(step_s, MAX_POSTPONED_S)
        at_s, late_s = at_s + found.wait_s, found.late_s
        assert at_s >= due_s - made  # late_s is in whole seconds
        assert at_s <= sum(ladder_s) + made
    assert rules.wait_after(503, len(ladder_s) + 1, schedule, jitter=0.0) is None


def test_later_steps_make_up_for_a_postponement() -> None:
    schedule = rules.retry_schedule(LADDER_S)
    waits, late_s = [], 0
    for made, asked_s in enumerate((5000.0, 0.0, 0.0, 600.0, 0.0, 0.0, 9000.0), start=1):
        found = postponed(LADDER_S[made - 1], made, schedule, asked_s=asked_s, late_s=late_s)
        late_s = found.late_s
        waits.append(found.wait_s)
    assert waits == [3600, 60, 300, 1800, 7200 - 3590, 21600, 43200]
    assert sum(waits) == sum(LADDER_S)


async def endpoint_of(here: World, receiver: Receiver, *, honors: bool) -> Endpoint:
    made = await here.endpoint(receiver.url)
    await webhooks_service.change(
        here.pool, made.account.id, made.id, url=None, event_types=None, status=None, pepper=PEPPER,
        options=PostOptions(honor_retry_after=honors),
    )  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("status", "honors", "value", "wait_s"),
    [
        (503, True, "900", 900),
        (429, True, "7200", 3600),
        (429, True, "3", 10),
        (503, False, "900", 10),
        (500, True, "900", 10),
    ],
)
async def test_the_next_attempt_is_as_late_as_the_receiver_asks(
    here: World, receiver: Receiver, status: int, honors: bool, value: str, wait_s: float
) -> None:
    receiver.status = status
    receiver.headers = {f"X-Filler-{number}": "f" * 300 for number in range(5)} | {"Retry-After": value}
    endpoint = await endpoint_of(here, receiver, honors=honors)
    event = await here.event(endpoint.account)
    async with here.posting():
        await here.until_attempts(endpoint, event, 1)
        [row] = await here.queued(endpoint)
        began = clock.now()
        waits = (row["due_at"] - began).total_seconds()
        assert wait_s - 120 < waits <= wait_s + 1
        assert row["late_s"] == (wait_s - 10 or None)
        await here.make_due(endpoint)
        await here.until_attempts(endpoint, event, 2)

    [first, second] = await here.attempts(endpoint, event)
    assert (first.attempt, second.attempt) == (1, 2)


async def test_a_date_counts_from_the_machines_clock_and_the_delay_is_made_up_for(
    here: World, receiver: Receiver
) -> None:
    receiver.status = 503
    receiver.headers = {"Retry-After": format_datetime(clock.machine_now() + timedelta(hours=1), usegmt=True)}
    endpoint = await endpoint_of(here, receiver, honors=True)
    event = await here.event(endpoint.account)
    async with here.posting():
        await here.until_attempts(endpoint, event, 1)
        [row] = await here.queued(endpoint)
        assert 3000 < row["late_s"] <= 3590
        receiver.headers = {}
        await here.pool.execute("UPDATE webhook_queue SET attempts = 4 WHERE webhook_id = $1", endpoint.id)
        await here.make_due(endpoint)
        await here.until_attempts(endpoint, event, 2)
        [after] = await here.queued(endpoint)
        wait_s = await here.make_due(endpoint)

    assert after["late_s"] is None
    assert wait_s == pytest.approx(7200 - row["late_s"], abs=120)


async def test_a_receiver_that_asks_after_the_last_retry_is_not_tried_again(here: World, receiver: Receiver) -> None:
    receiver.status, receiver.headers = 503, {"Retry-After": "60"}
    endpoint = await endpoint_of(here, receiver, honors=True)
    event = await here.event(endpoint.account)
    await here.pool.execute("UPDATE webhook_queue SET attempts = 7 WHERE webhook_id = $1", endpoint.id)
    async with here.posting():
        await here.until_posted(endpoint)
    [attempt] = await here.attempts(endpoint, event)
    assert (attempt.attempt, attempt.delivered) == (8, False)
