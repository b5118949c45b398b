"""The bench of readers: every case is a request or an input of its own, and a costly parser is found."""

from collections import Counter

import pytest

from ops.bench.readers.cases import FunctionCase, HttpCase, Target
from ops.bench.readers.measuring import Cost, measured
from ops.bench.readers.registry import ALL_CASES
from ops.bench.readers.run import MAX_MS, above_mark

TARGET = Target("127.0.0.1", 1, "a-key", "shop@bench.test")


def test_each_case_has_a_name_of_its_own_and_names_its_bound() -> None:
    assert max(Counter((case.reader, case.worst) for case in ALL_CASES).values()) == 1
    assert all(case.bound for case in ALL_CASES)


@pytest.mark.parametrize("case", [one for one in ALL_CASES if isinstance(one, HttpCase)], ids=lambda one: one.worst)
def test_a_case_of_http_is_a_whole_request(case: HttpCase) -> None:
    octets = b"".join(case.request(TARGET).pieces)
    head, end, body = octets.partition(b"\r\n\r\n")

    assert end
    assert head.count(b" HTTP/1.1\r\n") == 1
    if b"\r\nContent-Length: " in head:
        assert int(head.rsplit(b"Content-Length: ", 1)[1].split(b"\r\n")[0]) == len(body)


def test_a_parser_whose_work_grows_faster_than_its_input_is_above_the_mark() -> None:
    slow = FunctionCase(
        "slow", "anything", "nothing", lambda: b"x" * 3_000, lambda octets: [octets * 40 for _ in octets]
    )
    quick = FunctionCase("quick", "anything", "its size", lambda: b"x" * 3_000, len)

    assert measured(slow, TARGET, []).us_per_octet > 10 * measured(quick, TARGET, []).us_per_octet
    assert above_mark(Cost(slow, "read", 100, MAX_MS + 1))
    assert not above_mark(Cost(slow, "read", 100, MAX_MS - 1))
