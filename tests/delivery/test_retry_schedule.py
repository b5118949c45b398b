"""Times of retries, and the end of the retry schedule."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from engine.base.settings import Settings
from engine.delivery.retry_schedule import RetrySchedule, next_attempt_at

START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
SETTINGS = Settings()


def due(attempts: int, now: datetime, jitter: float = 0.5, deliver_by: datetime | None = None) -> datetime | None:
    return next_attempt_at(
        attempts,
        START,
        now,
        ladder_s=SETTINGS.retry_ladder_s,
        give_up_s=SETTINGS.give_up_s,
        jitter=jitter,
        deliver_by=deliver_by,
    )


def test_waits_follow_the_steps_and_then_repeat_the_last() -> None:
    hours = 3600
    expected = [30, 60, 120, 300, 900, 1800, hours, 2 * hours, 4 * hours, 8 * hours, 8 * hours, 8 * hours]
    for attempts, wait_s in enumerate(expected, start=1):
        assert due(attempts, START) == START + timedelta(seconds=wait_s)


def test_the_walk_ends_with_one_attempt_at_the_end_itself() -> None:
    end = START + timedelta(hours=72)
    at, attempts = START, 1
    walked = []
    while (following := due(attempts, at)) is not None:
        walked.append(following)
        at, attempts = following, attempts + 1
    assert walked[-1] == end
    assert walked[-2] < end
    assert len(walked) == 18  # ten steps reach 15 h 53 min 30 s, then seven of 8 h, then the end


def test_deliver_by_ends_the_retries_earlier() -> None:
    deadline = START + timedelta(seconds=45)
    assert due(1, START, deliver_by=deadline) == START + timedelta(seconds=30)
    assert due(2, START + timedelta(seconds=30), deliver_by=deadline) == deadline
    assert due(3, deadline, deliver_by=deadline) is None
    assert due(1, START, deliver_by=START - timedelta(seconds=1)) is None


def test_ladder_without_repetition_ends_after_its_steps() -> None:
    schedule = RetrySchedule((10, 60, 300))
    assert schedule.next_at(3, START, START, jitter=0.5) == START + timedelta(seconds=300)
    assert schedule.next_at(4, START, START, jitter=0.5) is None
    assert RetrySchedule(()).next_at(1, START, START, jitter=0.5) is None
    assert RetrySchedule((), repeat_last=True).next_at(1, START, START, jitter=0.5) is None


@given(
    st.integers(0, 40),
    st.integers(0, 100 * 3600),
    st.floats(0, 1, exclude_max=True),
)
def test_next_attempt_lies_in_the_future_within_jitter_and_never_past_the_end(
    attempts: int, elapsed_s: int, jitter: float
) -> None:
    now = START + timedelta(seconds=elapsed_s)
    end = START + timedelta(seconds=SETTINGS.give_up_s)
    at = due(attempts, now, jitter)
    if at is None:
        assert now >= end
        return
    assert now < at <= end
    steps = SETTINGS.retry_ladder_s
    step_s = steps[min(max(attempts - 1, 0), len(steps) - 1)]
    assert (at - now).total_seconds() <= step_s * 1.1
    assert at == end or (at - now).total_seconds() >= step_s * 0.9 - 1e-6
