"""Batch sizes and pauses of a broadcast's acceptance."""

import pytest

from engine.audience.broadcasts.pace import BUSY_RATE, FIRST_BATCH, MAX_PAUSE_S, MIN_BATCH, SHORT_WAIT, BatchPace
from engine.audience.broadcasts.rules import MAX_BATCH


def after(pace: BatchPace, each_s: float, times: int = 1) -> float:
    """Report batches with that time for a message; return the last pause."""
    pause_s = 0.0
    for _ in range(times):
        pause_s = pace.pause_after(
            pace.size, composed_s=pace.size * each_s / 2, stored_s=pace.size * each_s / 2, processor_wait=0.0
        )
    return pause_s


def test_quick_transactions_make_batches_larger_and_slow_ones_smaller() -> None:
    pace = BatchPace()
    assert pace.size == FIRST_BATCH
    after(pace, 0.00002, times=50)
    assert pace.size == MAX_BATCH
    after(pace, 0.01, times=50)
    assert pace.size == MIN_BATCH


def test_batches_of_large_content_are_smaller_and_adapt_to_load_too() -> None:
    pace = BatchPace(7)
    after(pace, 0.00002, times=50)
    assert pace.size == 7
    after(pace, 0.01, times=50)
    assert pace.size == 7
    assert after(pace, 0.04) > 0.0


def test_a_broadcast_pauses_in_proportion_to_how_much_slower_its_batches_got() -> None:
    pace = BatchPace()
    assert after(pace, 0.0005, times=20) == 0.0
    assert after(pace, 0.0006) == 0.0

    slower, much_slower = after(pace, 0.00175), after(pace, 0.002)
    assert 0.0 < slower < much_slower <= MAX_PAUSE_S


def test_a_pause_is_never_longer_than_the_batch_nor_without_end() -> None:
    pace = BatchPace()
    after(pace, 0.0001, times=10)
    size = pace.size
    assert 0.0 < after(pace, 0.0009) <= 1.001 * size * 0.0009
    assert after(pace, 1.0) == MAX_PAUSE_S


def test_a_lasting_slowness_becomes_the_new_normal() -> None:
    pace = BatchPace()
    after(pace, 0.0005, times=10)
    assert after(pace, 0.002) > 0.0
    assert after(pace, 0.002, times=1_500) == 0.0


def test_the_rest_of_a_chunk_says_nothing_about_the_load() -> None:
    pace = BatchPace()
    after(pace, 0.0005, times=10)
    assert pace.pause_after(1, composed_s=0.05, stored_s=0.05) == 0.0
    assert pace.pause_after(0, composed_s=0.0, stored_s=0.0) == 0.0


def test_while_processors_are_busy_all_broadcasts_of_a_process_share_a_moderate_rate() -> None:
    pace = BatchPace()

    def rate(processor_wait: float, broadcasts: int) -> float:
        pause_s = pace.pause_after(
            50, composed_s=0.002, stored_s=0.004, processor_wait=processor_wait, broadcasts=broadcasts
        )
        return 50 / (0.006 + pause_s)

    assert rate(SHORT_WAIT, 1) > 4 * BUSY_RATE
    assert rate(SHORT_WAIT + 0.01, 1) == pytest.approx(BUSY_RATE)
    assert rate(SHORT_WAIT + 0.01, 2) == pytest.approx(BUSY_RATE / 2)
