"""Ids contain and sort by their time, and parse only as their own kind."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import ids
from engine.base.ids import Kind, WrongId

moments = st.integers(0, 2**48 - 1)


@given(moments, st.binary(min_size=10, max_size=10))
def test_a_uuid7_has_its_version_variant_and_time(at_ms: int, entropy: bytes) -> None:
    value = ids.uuid7(at_ms, entropy)

    assert value.version == 7
    assert value.variant == "specified in RFC 4122"
    assert ids.milliseconds_of(value) == at_ms


@given(moments, st.integers(0, 200))
def test_a_batch_of_ids_ascends_within_one_millisecond(at_ms: int, count: int) -> None:
    batch = list(ids.uuid7s(count, at_ms))

    assert len(batch) == count
    assert all(a < b for a, b in pairwise(batch))
    assert {ids.milliseconds_of(value) for value in batch} <= {at_ms}
    assert all(value.version == 7 for value in batch)


@given(moments, moments)
def test_ids_sort_by_time_in_every_form(earlier: int, later: int) -> None:
    if earlier == later:
        return
    earlier, later = sorted((earlier, later))
    a, b = ids.uuid7(earlier), ids.uuid7(later)

    assert a < b
    assert str(a) < str(b)
    assert a.bytes < b.bytes  # as Postgres compares them
    assert ids.format_id(Kind.MESSAGE, a) < ids.format_id(Kind.MESSAGE, b)


@given(moments, st.binary(min_size=10, max_size=10))
def test_the_floor_of_a_moment_is_below_every_id_of_it(at_ms: int, entropy: bytes) -> None:
    assert ids.floor_of(at_ms) <= ids.uuid7(at_ms, entropy)
    assert at_ms == 0 or ids.floor_of(at_ms) > ids.uuid7(at_ms - 1, b"\xff" * 10)


def test_the_floor_of_a_moment_before_the_epoch_is_the_first() -> None:
    assert ids.floor_of(-5) == ids.floor_of(0)


@given(st.uuids(), st.sampled_from(Kind))
def test_an_id_is_read_back_as_what_was_written(value: UUID, kind: Kind) -> None:
    text = ids.format_id(kind, value)

    assert ids.parse_id(kind, text) == value
    assert len(text) == len(kind.value) + 27
    assert text == text.lower()


def test_an_id_of_another_kind_is_refused() -> None:
    text = ids.format_id(Kind.MESSAGE, ids.uuid7())

    with pytest.raises(WrongId, match="begins with evt_"):
        ids.parse_id(Kind.EVENT, text)


BODY = ids.encode(UUID(int=5))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "msg",
        "msg_",
        BODY,
        f"msg-{BODY}",
        f"MSG_{BODY}",
        f"msg_{BODY[:-1]}",
        f"msg_{BODY}0",
        f"msg_{BODY[:-1]}U",
        f"msg_{BODY[:-1]}i",  # Crockford's look-alikes are not folded: one id has one text
        f"msg_{BODY[:-1]}A",
        f"msg_{BODY[:-1]} ",
        f"msg_{BODY[:-1]}\0",
        f"msg_{BODY[:-1]}٣",
        "msg_" + "z" * 26,  # more than 128 bits
        "msg_8" + "0" * 25,
    ],
)
def test_malformed_ids_are_refused(text: str) -> None:
    with pytest.raises(WrongId):
        ids.parse_id(Kind.MESSAGE, text)


@given(st.text(max_size=40))
def test_no_text_is_read_as_an_id_that_writes_otherwise(text: str) -> None:
    try:
        value = ids.parse_id(Kind.MESSAGE, text)
    except WrongId:
        return
    assert ids.format_id(Kind.MESSAGE, value) == text


@given(st.integers(1, 64), st.data())
def test_base32_writes_five_bits_in_each_character(length: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 32**length - 1))
    characters = [ids.ALPHABET[number >> 5 * place & 31] for place in reversed(range(length))]
    assert ids.base32(number, length) == "".join(characters)


def test_prefixes_are_unique() -> None:
    assert len({kind.value for kind in Kind}) == len(Kind)
