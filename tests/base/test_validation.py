"""Validation errors of a request body, in sentences for its author."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from engine.base.errors import MAX_FIELD, MAX_MESSAGE, ErrorType, Refusal
from engine.base.validation import SLUG_WORDS, fault_of
from engine.sending.emails.types import SendRequest, Slug


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(Struct, forbid_unknown_fields=True, rename="camel"):
    part_name: Annotated[str, Meta(min_length=1)]


class Whole(Struct, forbid_unknown_fields=True, kw_only=True):
    needed: bool
    number: Annotated[int, Meta(ge=1, le=100)] = 1
    least: Annotated[int, Meta(ge=1)] | None = None
    share: Annotated[float, Meta(le=1)] = 0
    slug: Slug | None = None
    colour: Colour = Colour.RED
    choice: Literal["a", "b"] | None = None
    parts: Annotated[list[Part], Meta(max_length=1)] = []
    either: Annotated[str, Meta(max_length=3)] | Annotated[list[str], Meta(min_length=1, max_length=2)] = ""
    named: dict[Annotated[str, Meta(min_length=1)], Annotated[str, Meta(max_length=2)]] = {}
    free: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"needed": 1}, "needed must be true or false"),
        ({"needed": None}, "needed must be true or false"),
        ({"number": 0}, "number must be a whole number from 1 to 100"),
        ({"number": 1.5}, "number must be a whole number from 1 to 100"),
        ({"least": "1"}, "least must be a whole number of at least 1"),
        ({"share": 2}, "share must be a number of at most 1"),
        ({"slug": "A"}, f"slug must be a string of 1 to 64 characters: {SLUG_WORDS}"),
        ({"colour": "green"}, "colour must be one of red, blue"),
        ({"choice": "c"}, "choice must be one of a, b"),
        ({"parts": {}}, "parts must be a list of at most 1 item"),
        ({"parts": [None]}, "parts[0] must be an object"),
        ({"parts": [{"partName": ""}]}, "parts[0].partName must be a string of at least 1 character"),
        ({"parts": [{}]}, "parts[0].partName is required"),
        ({"parts": [{"partName": "x", "a": 1}]}, "parts[0].a is not a known field"),
        ({"either": 1}, "either must be a string of at most 3 characters or a list of 1 to 2 items"),
        ({"either": ["a", 1]}, "either[1] must be a string"),
        ({"named": []}, "named must be an object"),
        ({"named": {"a": "b", "c": 5, "d": 6}}, "named.c must be a string of at most 2 characters"),
        ({"named": {"a": "b", "c.d[0]": "abc"}}, "named.c.d[0] must be a string of at most 2 characters"),
        ({"named": {"": "b"}}, "named must name each entry by a string of at least 1 character"),
        ({"unknown": 1}, "unknown is not a known field"),
        ([], " must be an object"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_fault_names_its_place_and_what_was_wanted(wrong: Any, said: str) -> None:
    whole = {"needed": True} | wrong if isinstance(wrong, dict) else wrong
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(whole), type=Whole)
    found = fault_of(caught.value, Whole, whole)

    assert f"{found.path} {found.words}" == said


def test_a_value_that_is_not_at_hand_leaves_its_entry_unnamed() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"needed": True, "named": {"a": 1}}, Whole)

    assert fault_of(caught.value, Whole, None).path == "named"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(SendRequest.__struct_encode_fields__), plain, max_size=4))
def test_any_fault_of_a_request_has_words(wrong: dict[str, Any]) -> None:
    whole = {"from": "a@b.test", "to": "a@b.test"} | wrong
    try:
        msgspec.convert(whole, SendRequest)
    except msgspec.ValidationError as error:
        found = fault_of(error, SendRequest, whole)
        assert found.path
        assert found.words.startswith(("must be ", "must name ", "is required", "is not a known field"))


def test_a_refusal_cuts_what_it_repeats_of_the_client() -> None:
    refusal = Refusal(
        ErrorType.INVALID_REQUEST, "x" * 1_000_000, field="y" * 1_000_000, missing=["z" * 1_000_000], limit=3
    )

    assert refusal.message == "x" * (MAX_MESSAGE - 1) + "…"
    assert refusal.fields == {
        "field": "y" * (MAX_FIELD - 1) + "…",
        "missing": ["z" * (MAX_FIELD - 1) + "…"],
        "limit": 3,
    }
    assert Refusal(ErrorType.CONFLICT, "short", id="x" * MAX_FIELD).fields == {"id": "x" * MAX_FIELD}
