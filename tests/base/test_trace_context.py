"""`traceparent`: what is valid, what is kept, and where events hold it."""

import pytest

from engine.base import ids, trace_context

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (VALID, VALID),
        (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-00"),
        (f" {VALID}\t", VALID),
        (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-{PARENT}-03"),  # flags without a meaning are not passed on
        (f"cc-{TRACE}-{PARENT}-01", VALID),  # a later version: read as version 00
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-holds", VALID),
    ],
)
def test_a_valid_one_is_kept_as_version_00(given: str, kept: str) -> None:
    assert trace_context.read(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        None, "", "00", f"{VALID}-", f"{VALID}-more", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[1:]}-{PARENT}-01", f"{VALID},{VALID}",
        f"cc-{TRACE}-{PARENT}-01.more", f"00-{TRACE}-{PARENT}-1", f"00-{TRACE}-{PARENT}-0١", f"{VALID}\n",
        "a" * 100_000,
    ],
)  # fmt: skip
def test_an_invalid_one_is_ignored(given: str | None) -> None:
    assert trace_context.read(given) is None


def test_its_parts_are_read_and_written() -> None:
    assert trace_context.trace_of(VALID) == TRACE
    assert trace_context.parent_of(VALID) == PARENT
    assert trace_context.flags_of(f"00-{TRACE}-{PARENT}-02") == 2
    assert trace_context.continued(f"00-{TRACE}-{PARENT}-00", 255) == f"00-{TRACE}-00000000000000ff-01"
    made = trace_context.written(int(TRACE, 16), int(PARENT, 16))
    assert made == f"00-{TRACE}-{PARENT}-03"
    assert trace_context.read(made) == made


def test_events_are_searched_at_its_place_alone() -> None:
    public = ids.format_id(ids.Kind.MESSAGE, ids.uuid7())
    payload = f'{{"type":"schedule_canceled","messageId":"{public}","detail":{{"traceparent":"{VALID}","a":1}}}}'
    assert trace_context.in_payload(payload) == VALID
    behind = f'{{"type":"accepted","messageId":"{public}","detail":{{"a":1,"traceparent":"{VALID}"}}}}'
    assert trace_context.in_payload(behind) is None
    inside = f'\\"detail\\":{{\\"traceparent\\":\\"{VALID}'  # what a string of JSON makes of it
    assert trace_context.in_payload(f'{{"type":"failed","messageId":null,"detail":{{"a":"{inside}"}}}}') is None
