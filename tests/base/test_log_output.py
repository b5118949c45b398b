"""Log lines are written by a thread, in order, and a reader that is slow or gone stops nobody."""

import io
import threading

import pytest

from engine.base import log_output
from engine.base.log_output import LogOutput
from tests.harness.patience import PATIENCE_S


class BlockedFile(io.StringIO):
    """A file whose writes wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()

    def write(self, text: str) -> int:
        """Write `text` once the test allows it."""
        assert self.may_write.wait(PATIENCE_S)
        return super().write(text)


def test_lines_are_written_in_order_while_the_reader_is_slow() -> None:
    file = BlockedFile()
    output = LogOutput(file)
    for number in range(1_000):
        output.write(f"{number}\n")
    file.may_write.set()
    output.close()

    assert file.getvalue().split() == [str(number) for number in range(1_000)]


def test_a_line_is_dropped_where_the_reader_stays_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_output, "MAX_WAITING_CHARS", 100)
    monkeypatch.setattr(log_output, "MAX_WAIT_S", 0.05)
    file = BlockedFile()
    output = LogOutput(file)
    written = [output.write("x" * 99 + "\n") for _ in range(4)]
    file.may_write.set()
    output.close()

    assert written == [100, 100, 0, 0]
    assert len(file.getvalue()) == 200


def test_a_file_that_refuses_a_line_ends_nothing() -> None:
    file = io.StringIO()
    output = LogOutput(file)
    file.close()
    output.write("lost\n")
    output.close()
