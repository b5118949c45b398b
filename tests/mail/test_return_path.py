"""Return paths: they name their message, nobody else can make one, and mail servers may change their case."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.return_path import SHARED, ReturnPathOrigin, origin, return_path

KEY = b"k" * 32
MESSAGE = UUID("01936f5c-3a7b-7abc-8def-0123456789ab")

places = st.integers(0, 255)


@given(st.uuids(), places)
def test_a_return_path_names_its_message_and_place(message: UUID, place: int) -> None:
    assert origin(KEY, return_path(KEY, message, place, "bounces.mail.test")) == ReturnPathOrigin(message, place)


@given(st.uuids(), places)
def test_a_return_path_is_a_legal_local_part(message: UUID, place: int) -> None:
    local, _, domain = return_path(KEY, message, place, "bounces.mail.test").partition("@")

    assert domain == "bounces.mail.test"
    assert local.startswith("b+")
    assert len(local) == 42 <= 64  # RFC 5321 4.5.3.1.1
    assert local.isascii()
    assert local[2:].isalnum()


def test_upper_case_on_the_way_back_does_no_harm() -> None:
    path = return_path(KEY, MESSAGE, 3, "bounces.mail.test")

    assert origin(KEY, path.upper()) == ReturnPathOrigin(MESSAGE, 3)


def test_a_shared_transaction_has_a_place_of_its_own() -> None:
    assert origin(KEY, return_path(KEY, MESSAGE, SHARED, "b.test")) == ReturnPathOrigin(MESSAGE, SHARED)


@given(place=st.integers(0, 39), letter=st.sampled_from("0123456789abcdefghjkmnpqrstvwxyz"))
def test_no_letter_can_be_changed(place: int, letter: str) -> None:
    path = return_path(KEY, MESSAGE, 3, "b.test")
    forged = path[: place + 2] + letter + path[place + 3 :]

    assert (origin(KEY, forged) is None) == (forged != path)


def test_another_key_makes_other_paths() -> None:
    path = return_path(KEY, MESSAGE, 3, "b.test")

    assert origin(b"x" * 32, path) is None
    assert return_path(b"x" * 32, MESSAGE, 3, "b.test") != path


@pytest.mark.parametrize(
    "address",
    [
        "",
        "@",
        "b+",
        "b+@b.test",
        "postmaster@b.test",
        "b+" + "0" * 39 + "@b.test",
        "b+" + "0" * 41 + "@b.test",
        "b+" + "u" * 40 + "@b.test",  # not a letter of the alphabet
        "b+" + "٣" * 40 + "@b.test",
        "c" + return_path(KEY, MESSAGE, 3, "b.test")[1:],
    ],
)
def test_any_other_address_names_nothing(address: str) -> None:
    assert origin(KEY, address) is None


@given(st.text(max_size=60))
def test_no_text_makes_it_fail(text: str) -> None:
    assert origin(KEY, text + "@b.test") is None
