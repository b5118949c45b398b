"""Feedback-ID and CFBL values: stable, in the documented form, without personal data."""

import re
from uuid import UUID, uuid4

import pytest

from engine.base.secrets import DerivedKey, Pepper
from engine.mail import feedback_headers, return_path

KEY = DerivedKey(b"k" * 32)
ACCOUNT = UUID("01900000-0000-7000-8000-000000000001")
MESSAGE = UUID("01900000-0000-7000-8000-000000000002")


def test_sender_id_is_stable_unique_and_within_googles_length() -> None:
    found = feedback_headers.sender_id(KEY, ACCOUNT)

    assert re.fullmatch(r"[0-9a-z]{5,15}", found)
    assert found == feedback_headers.sender_id(KEY, ACCOUNT)
    assert len({feedback_headers.sender_id(KEY, uuid4()) for _ in range(1_000)}) == 1_000
    assert found != feedback_headers.sender_id(b"other", ACCOUNT)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("welcome", "transactional", "example.com"), "welcome:transactional:example.com:s1234"),
        (("a:b", "ü x\r\n", ""), "a-b:x::s1234"),
        ((), "s1234"),
        (("x" * 200,), "x" * 40 + ":s1234"),
    ],
)
def test_feedback_id_has_at_most_four_fields_and_no_divider_inside(fields: tuple[str, ...], expected: str) -> None:
    assert feedback_headers.feedback_id(fields, "s1234") == expected


def test_a_fifth_field_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 3"):
        feedback_headers.feedback_id(("a", "b", "c", "d"), "s1234")


def test_cfbl_address_asks_for_arf() -> None:
    assert feedback_headers.cfbl_address("fbl@bounce.example.com") == "fbl@bounce.example.com; report=arf"


def test_cfbl_fields_lead_back_to_the_message() -> None:
    fields = feedback_headers.cfbl_fields(KEY, MESSAGE, "bounce.example.com")
    address, token, _ = fields.split("\r\n")

    assert address == "CFBL-Address: fbl@bounce.example.com; report=arf"
    found = feedback_headers.cfbl_origin(KEY, token.partition(": ")[2])
    assert found is not None
    assert found.message_id == MESSAGE
    long = feedback_headers.cfbl_fields(KEY, MESSAGE, ".".join(["x" * 60] * 4))
    assert max(map(len, long.split("\r\n"))) < 998


def test_cfbl_feedback_id_leads_back_to_the_message_and_a_forged_one_nowhere() -> None:
    value = feedback_headers.cfbl_feedback_id(KEY, MESSAGE)
    found = feedback_headers.cfbl_origin(KEY, f" {value.upper()}\r\n")

    assert found is not None
    assert found.message_id == MESSAGE
    assert feedback_headers.cfbl_origin(DerivedKey(b"other"), value) is None
    assert feedback_headers.cfbl_origin(KEY, "x" * 40) is None
    assert feedback_headers.cfbl_origin(KEY, "") is None


def test_cfbl_feedback_id_is_no_return_path_and_a_return_path_no_cfbl_feedback_id() -> None:
    pepper = Pepper("p" * 32)
    cfbl, path = feedback_headers.cfbl_key(pepper), return_path.key_of(pepper)

    value = feedback_headers.cfbl_feedback_id(cfbl, MESSAGE)
    assert return_path.origin(path, f"b+{value}@bounces.example.com") is None
    for place in range(256):
        assert feedback_headers.cfbl_origin(cfbl, return_path.token(path, MESSAGE, place)) is None
