"""Transfer encodings: well-formed content exactly, damaged content as far as it goes and named, in linear time."""

import binascii
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.encode import base64_body
from engine.mail.transfer_encoding import decode, known_encoding
from tests.harness.sampling import examples
from tests.mail.written_mail import encoded

BASE64, QP, UU = "base64", "quoted-printable", "x-uuencode"


@pytest.mark.parametrize(
    ("raw", "content", "damaged"),
    [
        (b"SGVsbG8gV29ybGQ=\r\n", b"Hello World", False),
        (b"SGVs\r\nbG8\r\n=\r\n", b"Hello", False),
        (b"SG Vs bG8=", b"Hello", False),
        (b"SGVsbG8=\r\nIFdvcmxk", b"Hello World", True),  # ended and begun again
        (b"YQ==YQ==YQ==", b"aaa", True),
        (b"SGVsbG8gV29ybGQh\r\nSGk=\r\n-- \r\nlist footer here", b"Hello World!Hi", True),
        (b"SGVsbG8=\r\nSent by a list\r\n", b"Hello", True),
        (b"SGV!sbG8=", b"Hello", True),
        (b"YQ", b"a", True),
        (b"YWJjZ", b"abc", True),
        (b"YQ===\r\n", b"a", False),
        (b"", b"", False),
        (b"=", b"", False),
    ],
)
def test_base64_is_decoded_as_far_as_it_goes(raw: bytes, content: bytes, damaged: bool) -> None:
    assert decode(raw, BASE64) == (content, damaged)


@pytest.mark.parametrize(
    ("raw", "content", "damaged"),
    [
        (b"foo= \r\nbar", b"foobar", False),  # RFC 2045 6.7 rule 3
        (b"foo=\t\nbar", b"foobar", False),
        (b"foo  \t\r\nbar \r\n", b"foo\r\nbar\r\n", False),
        (b"foo ", b"foo", False),
        (b"a=\rhidden\r\nb", b"ahidden\r\nb", True),
        (b"a=3Db=3db=\r\nc", b"a=b=bc", False),
        (b"a=ZZ", b"a=ZZ", True),
        (b"a = b", b"a = b", True),
        (b"a==", b"a=", True),
        (b"a==x", b"a==x", True),
        (b"a===\r\nb", b"a==b", True),
        (b"a=", b"a", False),
        (b"=C3=BC=\r\n", "ü".encode(), False),
    ],
)
def test_quoted_printable_loses_no_words(raw: bytes, content: bytes, damaged: bool) -> None:
    assert decode(raw, QP) == (content, damaged)


@pytest.mark.parametrize(
    ("raw", "content", "damaged"),
    [
        (b"begin 644 a.txt\r\n#86)C\r\n`\r\nend\r\n", b"abc", False),
        (b"#86)C\n", b"abc", True),
        (b"begin 644 a\n#86)C", b"abc", True),
        (b"hello\nbegin 644 a\n#86)C\n`\nend\nbye", b"abc", True),
        (b"begin 644 a\n\xff\xff\n`\nend\n", b"", True),
    ],
)
def test_uuencode_is_decoded_between_its_lines(raw: bytes, content: bytes, damaged: bool) -> None:
    assert decode(raw, UU) == (content, damaged)


@examples(2_000)
@given(st.binary(max_size=400))
def test_what_was_encoded_is_decoded(content: bytes) -> None:
    assert decode(base64_body(content), BASE64) == (content, False)
    assert decode(encoded(content, UU), UU) == (content, False)
    text = binascii.b2a_qp(content, istext=False)
    assert decode(text, QP) == (content, False)


_pieces = st.sampled_from([
    b"QUJD", b"QQ==", b"QUI=", b"=", b"\r\n", b" ", b"!", b"a", b"=3D", b"=\r", b"=ZZ", b"begin 644 a\n", b"end\n",
    b"#86)C\n", b"`\n", b"\t", b"x",
])  # fmt: skip


@examples(2_000)
@given(st.lists(_pieces, max_size=20).map(b"".join))
def test_octets_that_are_left_out_are_damage(raw: bytes) -> None:
    octets, damaged = decode(raw, BASE64)
    letters = raw.translate(None, b"\r\n \t").rstrip(b"=")
    if not damaged:  # the last letter may have bits that encode nothing
        assert binascii.b2a_base64(octets).strip().rstrip(b"=")[:-1] == letters[:-1]
    octets, damaged = decode(raw, QP)
    if not damaged:
        assert set(raw.translate(None, b"=\r\n \t0123456789ABCDEFabcdef")) <= set(octets)
    for encoding in (BASE64, QP, UU):
        assert decode(raw, encoding, whole=False)[0] == decode(raw, encoding)[0]


def test_large_content_is_decoded_in_slices() -> None:
    content = bytes(range(256)) * 5_000

    for raw in (
        base64_body(content),
        base64_body(content).replace(b"\r\n", b"\n"),
        base64_body(content).replace(b"\r\n", b""),
    ):
        assert decode(raw, BASE64) == (content, False)
    broken = base64_body(content).replace(b"\r\n", b"!\r\n", 1)
    assert decode(broken, BASE64) == (content, True)


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        ("7bit", ""),
        ("8bit", ""),
        ("binary", ""),
        ("", ""),
        ("base64", "base64"),
        ("x-uue", "x-uuencode"),
        ("x-own", "x-own"),
    ],
)
def test_encodings_have_one_name(declared: str, known: str) -> None:
    assert known_encoding(declared) == known


def test_an_unknown_encoding_leaves_content_as_it_is_and_is_damage() -> None:
    assert decode(b"abc", "x-own") == (b"abc", True)


@pytest.mark.parametrize("encoding", [BASE64, QP, UU])
@pytest.mark.parametrize(
    "piece",
    [b"=", b"=!", b"A=", b"A!", b" ", b" x", b" \n", b"=\r", b"A\n", b"M\xff\n", b"begin 644 ", b"begin 644 a\n"],
)
def test_any_content_is_decoded_in_linear_time(encoding: str, piece: bytes) -> None:
    raw = piece * (512 * 1024 // len(piece)) + b"x"
    began = time.process_time()

    decode(raw, encoding)

    assert time.process_time() - began < 1.5  # measured: at most 0.35 s
