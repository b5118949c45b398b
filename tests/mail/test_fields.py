"""Headers read back: fields where they stand, in linear time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.charsets import in_charset
from engine.mail.fields import (
    MAX_FIELDS,
    MAX_HEADER,
    BadHeader,
    divided,
    fields,
    text_of,
)

FAST_S = 3.0


def test_fields_stand_where_they_were_written() -> None:
    mime = b"From: a@b.test\r\nSubject: one\r\n two\r\n\tthree\r\nX-EMPTY:\r\nTo : c@d.test\r\n\r\nbody\r\n"
    head_end, body_at = divided(mime)
    found = fields(mime, head_end)
    assert [(one.name, one.value) for one in found] == [
        (b"from", b" a@b.test"),
        (b"subject", b" one\r\n two\r\n\tthree"),
        (b"x-empty", b""),
        (b"to", b" c@d.test"),
    ]
    assert b"".join(mime[one.start : one.end] for one in found) == mime[:head_end]
    assert mime[body_at:] == b"body\r\n"


@pytest.mark.parametrize(
    ("mime", "bounds"),
    [
        (b"", (0, 0)),
        (b"\r\nbody", (0, 2)),
        (b"A: b\r\n", (6, 6)),
        (b"A: b", (4, 4)),
        (b"A: b\r\n\r\n", (6, 8)),
        (b"A: b\r\n\r\n\r\nbody", (6, 8)),
    ],
)
def test_the_first_empty_line_divides(mime: bytes, bounds: tuple[int, int]) -> None:
    assert divided(mime) == bounds


@pytest.mark.parametrize(
    "head",
    [
        b"no colon\r\n", b" folded first\r\n", b"A: b\r\n \r\n", b"A: b\r\n\t \r\nC: d\r\n", b": empty name\r\n",
        b"two words: x\r\n", b"From ann Mon Jan 1\r\n", "ü: x\r\n".encode(), b"\x00: x\r\n",
        b"A: b\r\n" * (MAX_FIELDS + 1), b"A: " + b"x" * MAX_HEADER + b"\r\n",
    ],
)  # fmt: skip
def test_what_is_no_header_is_refused(head: bytes) -> None:
    with pytest.raises(BadHeader):
        fields(head, len(head))


def test_what_is_decoded_can_be_stored() -> None:
    for value in (b"=?utf-8?q?a=00=0D=0Ab?=", b"=?utf-16?b?AAA=?=", b"=?utf-7?q?+2AAAAA-?=", b"\xff\xfe", b"a\x07b"):
        text = text_of(value)
        text.encode()
        assert not any(letter in text for letter in "\0\r\n\x07")


@given(st.binary(max_size=60), st.text(max_size=12))
def test_any_octets_in_any_charset_become_text(octets: bytes, charset: str) -> None:
    assert isinstance(in_charset(octets, charset).encode(), bytes)


def test_a_header_of_folds_takes_linear_time() -> None:
    head = b"A: b\r\n" + b" c\r\n" * (MAX_HEADER // 4 - 4)
    began = time.thread_time()
    assert len(fields(head, len(head))) == 1
    assert time.thread_time() - began < FAST_S
