"""`ops bench --readers`: cases are valid and unique, and a costly parser is found."""

import contextlib
from collections import Counter

import pytest

from engine.base.errors import Refusal
from engine.people.identity.id_tokens import BadToken
from loadtests.bench.readers.cases import FunctionCase, HttpCase, ReaderTarget
from loadtests.bench.readers.measuring import Cost, measured
from loadtests.bench.readers.registry import ALL_CASES
from loadtests.bench.readers.run import MAX_MS, above_mark
from tests.harness.sampling import sampled

TARGET = ReaderTarget("127.0.0.1", 1, "a-key", "shop@bench.test")


def test_case_names_are_unique_and_each_case_names_its_bound() -> None:
    assert max(Counter((case.reader, case.worst) for case in ALL_CASES).values()) == 1
    assert all(case.bound for case in ALL_CASES)


@pytest.mark.parametrize("case", [one for one in ALL_CASES if isinstance(one, HttpCase)], ids=lambda one: one.worst)
def test_an_http_case_is_a_complete_request(case: HttpCase) -> None:
    octets = b"".join(case.request(TARGET).pieces)
    head, end, body = octets.partition(b"\r\n\r\n")

    assert end
    assert head.count(b" HTTP/1.1\r\n") == 1
    if b"\r\nContent-Length: " in head:
        assert int(head.rsplit(b"Content-Length: ", 1)[1].split(b"\r\n")[0]) == len(body)


@pytest.mark.properties
@pytest.mark.parametrize(
    "case",
    sampled([one for one in ALL_CASES if isinstance(one, FunctionCase)], 10),
    ids=lambda one: f"{one.reader}: {one.worst}",
)
def test_a_worst_input_is_read_or_refused(case: FunctionCase) -> None:
    content = case.content()
    assert content
    with contextlib.suppress(ValueError, Refusal, BadToken):
        case.read(content)


def test_a_parser_with_quadratic_cost_exceeds_the_limit() -> None:
    slow = FunctionCase(
        "slow", "anything", "nothing", lambda: b"x" * 3_000, lambda octets: [octets * 40 for _ in octets]
    )
    quick = FunctionCase("quick", "anything", "its size", lambda: b"x" * 3_000, len)

    assert measured(slow, TARGET, []).us_per_octet > 10 * measured(quick, TARGET, []).us_per_octet
    assert above_mark(Cost(slow, "read", 100, MAX_MS + 1))
    assert not above_mark(Cost(slow, "read", 100, MAX_MS - 1))
