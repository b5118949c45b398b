"""The time limit of a test that blocks its process: what waits is ended, what computes on a busy machine goes on."""

import pytest

from tests.harness import limits

AFTER_S = 100.0 + limits.KILL_AFTER_S


@pytest.mark.parametrize(
    ("passed_s", "processor_s", "over"),
    [
        (AFTER_S - 1, 0.0, False),
        (AFTER_S, 0.0, True),  # it waits for something
        (AFTER_S, 110.0, True),  # it computes for ever
        (AFTER_S, 30.0, False),  # others have the processors
        (501.0, 90.0, True),
    ],
)
def test_what_is_over(passed_s: float, processor_s: float, *, over: bool) -> None:
    assert limits.is_over(100.0, passed_s, processor_s) == over
