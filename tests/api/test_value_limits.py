"""The number of values in a JSON body is bounded before it is decoded."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http import value_limits
from api.http.decode import decode_body
from api.routes import all_operations
from engine.base.errors import Refusal
from engine.sending.emails.types import SendRequest

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='a,[{}]:"\\é\n', max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a,"\\{', max_size=4), inner, max_size=4),
    max_leaves=30,
)


def entries(value: object) -> int:
    """Count the opening brackets and the commas between entries, as the bound does."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(0, len(inner) - 1) + sum(map(entries, inner))


@pytest.mark.properties
@given(value=_json, indent=st.integers(0, 2))
def test_commas_and_brackets_are_counted_outside_of_strings(value: object, indent: int) -> None:
    body = msgspec.json.format(msgspec.json.encode(value), indent=indent)

    assert not value_limits.has_more(body, entries(value))
    assert entries(value) == 0 or value_limits.has_more(body, entries(value) - 1)


@pytest.mark.properties
@given(value=_json)
def test_a_body_with_many_quotes_is_counted_as_one_with_few(value: object) -> None:
    """Beyond a number of quotes they are not visited one by one."""
    padding = ['"\\'] * value_limits._MAX_HOPS
    body = msgspec.json.encode([padding, value])

    assert not value_limits.has_more(body, entries([padding, value]))
    assert value_limits.has_more(body, entries([padding, value]) - 1)


MANY = 400_000
DENSE: dict[str, Callable[[int], bytes]] = {
    "entries of an object": lambda n: b'{"metadata":{%b}}' % b",".join(b'"k%d":"v"' % one for one in range(n)),
    "backslashes": lambda n: b'{"metadata":{%b}}' % b",".join(b'"k%d\\\\":"\\\\"' % one for one in range(n)),
    "strings of a list": lambda n: b'{"tags":[%b]}' % b",".join([b'"a"'] * n),
    "empty lists": lambda n: b'{"data":{"a":[%b]}}' % b",".join([b"[]"] * n),
    "numbers": lambda n: b'{"data":{"a":[%b]}}' % b",".join([b"1"] * n),
    "nested lists": lambda n: b'{"data":{"a":' + b"[" * n,
    "a field given again": lambda n: b"{%b}" % b",".join([b'"text":""'] * n),
}  # fmt: skip


@pytest.mark.parametrize("dense", DENSE.values(), ids=DENSE)
def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(dense: Callable[[int], bytes]) -> None:
    decoder = msgspec.json.Decoder(SendRequest)
    with pytest.raises(Refusal) as caught:
        decode_body(dense(MANY), decoder)

    assert "entries in its objects and arrays" in caught.value.message
    assert caught.value.fields["field"] == "body"


def test_long_texts_and_attachments_are_no_values() -> None:
    text = '{"a": [1, 2, "b"]}, ' * 50_000
    body = msgspec.json.encode({
        "from": "a@b.test", "to": ["c@d.test"], "subject": "s", "text": text, "html": text,
        "attachments": [{"filename": "a", "contentType": "text/plain", "content": "QUJD" * 100_000}],
    })  # fmt: skip

    assert decode_body(body, msgspec.json.Decoder(SendRequest)).text == text


def test_every_operation_bounds_its_values() -> None:
    limits = [value_limits.values_allowed(one.request) for one in all_operations() if one.request is not None]

    assert max(limits) == value_limits.MAX_VALUES
    assert min(limits) > 0


def test_the_largest_batch_and_import_pass() -> None:
    requests = {f"{one.method} {one.path}": one.request for one in all_operations() if one.request is not None}
    row = {"email": "ann@people.test", "name": "Ann", "fields": {f"field{number}": "value" for number in range(50)}}
    message = {
        "from": "a@b.test", "to": ["c@d.test"] * 50, "subject": "s", "text": "Hello!", "tags": ["a"] * 10,
        "metadata": {f"name{number}": "value" for number in range(50)}, "headers": {f"X-{n}": "v" for n in range(20)},
    }  # fmt: skip
    for path, body in (
        ("POST /v1/contacts/import", {"contacts": [row] * 1_000, "consent": "customer"}),
        ("POST /v1/emails/batch", {"messages": [message] * 100}),
    ):
        decode_body(msgspec.json.encode(body), msgspec.json.Decoder(requests[path]))


def test_a_small_body_is_decoded_as_before() -> None:
    """The decoder refuses a small body, and names the field."""
    small = DENSE["strings of a list"](value_limits.SMALL_BYTES // 5)
    with pytest.raises(Refusal) as caught:
        decode_body(small, msgspec.json.Decoder(SendRequest))

    assert caught.value.fields["field"] != "body"
