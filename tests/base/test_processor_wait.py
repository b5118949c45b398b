"""Test the measurement of the time that a process waits for a processor."""

import sys
from pathlib import Path

import pytest

from engine.base.processor_wait import ProcessorWait


def told(path: Path, ran_ms: int, waited_ms: int) -> None:
    path.write_text(f"{ran_ms * 1_000_000} {waited_ms * 1_000_000} 7\n")


def test_the_part_of_the_working_time_that_was_spent_waiting(tmp_path: Path) -> None:
    counters = tmp_path / "schedstat"
    told(counters, 5_000, 9_000)
    wait = ProcessorWait(counters)
    assert wait.look() == 0.0

    told(counters, 5_006, 9_004)
    assert wait.look() == pytest.approx(0.4)


def test_what_lies_back_counts_less_with_each_look(tmp_path: Path) -> None:
    counters = tmp_path / "schedstat"
    told(counters, 0, 0)
    wait = ProcessorWait(counters)
    told(counters, 0, 10)
    found = [wait.look()]
    for looks in range(1, 31):
        told(counters, 10 * looks, 10)
        found.append(wait.look())

    assert found == sorted(found, reverse=True)
    assert found[0] == 1.0
    assert found[-1] < 0.001


@pytest.mark.parametrize("content", [None, "", "1 2", "a b c"])
def test_where_the_system_does_not_tell_nothing_waits(tmp_path: Path, content: str | None) -> None:
    counters = tmp_path / "schedstat"
    if content is not None:
        counters.write_text(content)
    assert ProcessorWait(counters).look() == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="the counters are Linux's")
def test_linux_counts_the_time_of_this_thread() -> None:
    wait = ProcessorWait()
    sum(range(1_000_000))
    assert 0.0 <= wait.look() <= 1.0
