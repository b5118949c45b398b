"""The bounds of worst inputs find a costly reader."""

import time

import pytest

from tests.worst_inputs.costs import MAX_MS, check, is_cheap


@pytest.mark.exhaustive
def test_a_costly_reader_is_found() -> None:
    def slow(_octets: bytes) -> None:
        began = time.process_time()
        while (time.process_time() - began) * 1000 <= MAX_MS:
            pass

    with pytest.raises(AssertionError, match="10 octets cost"):
        check(slow, b"x" * 10)


def test_the_bound_grows_with_the_input() -> None:
    assert is_cheap(10, MAX_MS)
    assert not is_cheap(10, MAX_MS + 1)
    assert is_cheap(1_000_000, MAX_MS + 1)
