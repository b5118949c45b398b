"""The division of waiting times: whole milliseconds that always sum to the whole, whatever was measured."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.base import clock, ids
from engine.delivery.queue import Row
from engine.delivery.waits import DividedWait, WaitCause, divided, duration, in_words, partition, past_of, stored

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
ACCOUNT = UUID(int=1)
DAYS = st.integers(0, 3 * 86_400_000)
PARTS = st.dictionaries(st.sampled_from(WaitCause), st.floats(0, 1e8))


def row(*, waits: str | None = None, due_at: datetime = AT, attempts: int = 0, **more: object) -> Row:
    message = ids.floor_of(clock.milliseconds(AT))
    found = Row(message, "peer.test", 0, ACCOUNT, "a.test", "[]", 1, due_at, attempts, None, None, b"", False)
    return msgspec.structs.replace(found, waits=waits, **more)


def after(**passed: float) -> int:
    return clock.milliseconds(AT + timedelta(**passed))


@given(st.integers(-1_000, 3 * 86_400_000), PARTS)
def test_parts_sum_to_the_whole(whole_ms: int, parts: dict[WaitCause, float]) -> None:
    found = partition(whole_ms, parts, WaitCause.QUEUE)
    assert sum(found.values()) == max(0, whole_ms)
    assert all(ms > 0 for ms in found.values())


@given(DAYS, PARTS)
def test_a_part_is_within_a_millisecond_of_what_was_measured(rest_ms: int, parts: dict[WaitCause, float]) -> None:
    parts.pop(WaitCause.QUEUE, None)
    found = partition(round(sum(parts.values())) + 1 + rest_ms, parts, WaitCause.QUEUE)
    assert all(abs(found.get(cause, 0) - part) <= 1 for cause, part in parts.items())


@given(DAYS, DAYS, DAYS, st.floats(0, 1e9), PARTS, st.dictionaries(st.sampled_from(WaitCause), st.integers(1, 9**9)))
def test_a_row_answers_for_all_its_time(
    since_ms: int, due_ms: int, now_ms: int, held_ms: float, parts: dict[WaitCause, float], past: dict[WaitCause, int]
) -> None:
    since = AT + timedelta(milliseconds=since_ms)
    text = stored(since, past, {WaitCause.OWN_MAIL: 0.25, WaitCause.OTHER_ACCOUNTS: 0.75})
    waiting = row(waits=text, due_at=AT + timedelta(milliseconds=due_ms), attempts=1)
    found = divided(waiting, after(milliseconds=now_ms), held_ms, parts)
    assert sum(found.values()) == sum(past.values()) + max(0, now_ms - since_ms)


def test_a_fresh_row_waits_in_the_queue_until_it_is_taken() -> None:
    found = divided(row(due_at=AT + timedelta(seconds=2)), after(seconds=1), 400.0, {WaitCause.CONNECTION: 300.0})
    assert found == {WaitCause.QUEUE: 700, WaitCause.CONNECTION: 300}


def test_a_scheduled_message_waits_for_its_time_first() -> None:
    found = divided(row(released_at=AT + timedelta(hours=1)), after(hours=1, milliseconds=5), 5.0, {})
    assert found == {WaitCause.SCHEDULE: 3_600_000, WaitCause.QUEUE: 5}


def test_a_retry_waits_until_it_is_due_and_in_the_queue_from_then_on() -> None:
    text = stored(AT, {}, {WaitCause.RETRY: 1.0})
    waiting = row(waits=text, due_at=AT + timedelta(seconds=30), attempts=1)
    found = divided(waiting, after(seconds=31), 250.0, {WaitCause.CONNECTION: 250.0})
    assert found == {WaitCause.RETRY: 30_000, WaitCause.QUEUE: 750, WaitCause.CONNECTION: 250}


def test_what_was_divided_before_a_wait_in_the_queue_is_kept() -> None:
    text = stored(AT, {WaitCause.CONNECTION: 40}, {WaitCause.SITE_LIMITS: 1.0})
    found = divided(row(waits=text, due_at=AT + timedelta(seconds=5)), after(seconds=5), 0.0, {})
    assert found == {WaitCause.CONNECTION: 40, WaitCause.SITE_LIMITS: 5_000}


def test_the_time_of_an_operators_hold_is_for_the_queue() -> None:
    text = stored(AT, {}, {WaitCause.RETRY: 1.0})
    held = row(waits=text, due_at=AT + timedelta(hours=1), attempts=1, waiting="operator_hold")
    assert divided(held, after(hours=1), 0.0, {}) == {WaitCause.QUEUE: 3_600_000}


def test_a_row_of_a_version_that_did_not_measure_counts_from_its_due_time() -> None:
    assert past_of(row(attempts=2)) == DividedWait(after())


def test_words_name_the_largest_causes_and_other_accounts() -> None:
    assert in_words({}) == "Took 0 ms."
    assert in_words({WaitCause.QUEUE: 8}) == "Took 8 ms, of which 8 ms in the queue."
    waits = {
        WaitCause.CONNECTION: 300, WaitCause.TRANSACTION: 200, WaitCause.OTHER_ACCOUNTS: 100, WaitCause.QUEUE: 5,
    }  # fmt: skip
    assert in_words(waits) == (
        "Took 0.6 s, of which 0.3 s for the connection, 0.2 s for the SMTP transaction and 0.1 s for other accounts."
    )


def test_durations_have_a_unit_of_their_size() -> None:
    times = {0: "0 ms", 99: "99 ms", 100: "0.1 s", 2_449: "2.4 s", 180_000: "3 min", 9_000_000: "2.5 h"}
    assert {ms: duration(ms) for ms in times} == times
