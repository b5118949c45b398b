"""Return paths: they name their message, nobody else can make one, and mail servers may change their case."""

from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import clock, ids
from engine.base.secrets import DerivedKey
from engine.mail.return_path import (
    WHOLE_MESSAGE,
    WHOLE_MESSAGE_FOR,
    ReturnPathOrigin,
    origin,
    recipients_of,
    return_path,
    shared_place,
)
from tests.harness.stored_messages import PlacedAddress

KEY = DerivedKey(b"k" * 32)
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


ANN, BOB, CLEO = (
    PlacedAddress(n, address) for n, address in enumerate(["ann@people.test", "Bob@Far.test", "cleo@far.test"])
)


@pytest.mark.parametrize(
    ("place", "recipients", "spoken_for"),
    [
        (0, [ANN, BOB, CLEO], [ANN]),
        (2, [ANN, BOB, CLEO], [CLEO]),
        (3, [ANN, BOB, CLEO], []),
        (shared_place(0), [ANN, BOB, CLEO], [ANN]),
        (shared_place(1), [ANN, BOB, CLEO], [BOB, CLEO]),
        (shared_place(2), [ANN, BOB, CLEO], [BOB, CLEO]),
        (shared_place(3), [ANN, BOB, CLEO], []),
        (WHOLE_MESSAGE, [BOB, CLEO], [BOB, CLEO]),
        (WHOLE_MESSAGE, [ANN, BOB, CLEO], []),
        (WHOLE_MESSAGE, [ANN], []),
        (WHOLE_MESSAGE, [], []),
    ],
)
def test_a_return_path_speaks_for_its_recipient_or_for_those_of_its_domain(
    place: int, recipients: list[PlacedAddress], spoken_for: list[PlacedAddress]
) -> None:
    found = origin(KEY, return_path(KEY, MESSAGE, place, "b.test"))

    assert found is not None
    assert recipients_of(found, recipients) == spoken_for


def test_a_return_path_of_the_whole_message_ends_with_the_mail_that_was_under_way() -> None:
    now = clock.now()
    message = ids.uuid7(clock.milliseconds(now - WHOLE_MESSAGE_FOR))

    assert not ReturnPathOrigin(message, WHOLE_MESSAGE).is_outdated(now)
    assert ReturnPathOrigin(message, WHOLE_MESSAGE).is_outdated(now + timedelta(seconds=1))
    assert not ReturnPathOrigin(message, shared_place(0)).is_outdated(now + timedelta(days=900))


@given(place=st.integers(0, 39), letter=st.sampled_from("0123456789abcdefghjkmnpqrstvwxyz"))
def test_no_letter_can_be_changed(place: int, letter: str) -> None:
    path = return_path(KEY, MESSAGE, 3, "b.test")
    forged = path[: place + 2] + letter + path[place + 3 :]

    assert (origin(KEY, forged) is None) == (forged != path)


def test_another_key_makes_other_paths() -> None:
    path = return_path(KEY, MESSAGE, 3, "b.test")

    assert origin(DerivedKey(b"x" * 32), path) is None
    assert return_path(DerivedKey(b"x" * 32), MESSAGE, 3, "b.test") != path


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
