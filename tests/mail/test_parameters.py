"""Values of MIME fields, read as every mail program reads them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.charsets import CharsetFlaw, codec_of
from engine.mail.parameters import MAX_PARAMETERS, MAX_VALUE, parse_field
from tests.harness.sampling import examples


@pytest.mark.parametrize(
    ("value", "major", "minor"),
    [
        (b" text/plain; charset=utf-8", "text", "plain"),
        (b"(c) Text / HTML (d)", "text", "html"),
        (b'"text/html"', "text", "html"),
        (b"text/html, text/plain", "text", "html"),
        (b"text", "text", ""),
        (b"base64 (x)", "base64", ""),
        (b'"base64"', "base64", ""),
        (b"base64;", "base64", ""),
        (b"(a(b)) BASE64 ", "base64", ""),
        (b"\r\n base64", "base64", ""),
        (b"attachment filename=a", "attachment", ""),
        (b"filename=a", "", ""),
        (b";;", "", ""),
        (b"", "", ""),
        ("ünï/cödé".encode(), "", ""),
    ],
)
def test_the_word_before_the_parameters_is_read(value: bytes, major: str, minor: str) -> None:
    found = parse_field(value)

    assert (found.major, found.minor) == (major, minor)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (b"a/b; charset=utf-8 (UTF)", "charset", "utf-8"),
        (b"a/b; (c) charset = (d) utf-8", "charset", "utf-8"),
        (b'a/b; charset="utf-8";', "charset", "utf-8"),
        (b"a/b; charset*=us-ascii'en'utf-8", "charset", "utf-8"),
        (b"a/b charset=utf-8 format=flowed", "format", "flowed"),
        (b'a/b; charset="utf-8" boundary="b;c"', "boundary", "b;c"),
        (b'a/b; boundary="a\\"b"', "boundary", 'a"b'),
        (b'a/b; boundary="a\r\n\tb"', "boundary", "a\tb"),
        (b"a/b; boundary=(b)", "boundary", "(b)"),
        (b"a/b; boundary*0=a; boundary*1=b", "boundary", "ab"),
        (b"a/b; BOUNDARY=x; boundary=y", "boundary", "x"),
        (b'a/b; x="; boundary=c"; boundary=d', "boundary", "d"),
        (b"a/b; x=y", "boundary", ""),
    ],
)
def test_a_parameter_is_read_in_any_spelling(value: bytes, name: str, expected: str) -> None:
    assert parse_field(value).value(name) == expected


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (b'attachment; filename="=?UTF-8?B?w6TDpMOk?=\r\n =?UTF-8?B?w7YucGRm?="', ["äääö.pdf"]),
        (b'attachment; filename="a\r\n b.pdf"', ["a b.pdf"]),
        (b"attachment; filename=x.pdf (comment)", ["x.pdf"]),
        (b"attachment; filename=x.pdf (a (b) c)", ["x.pdf"]),
        (b"attachment; filename=x.pdf;y.pdf", ["x.pdf"]),
        (b"attachment; filename=Report (1).pdf", ["Report (1).pdf"]),
        (b"attachment; filename=a b.pdf", ["a b.pdf"]),
        (b'attachment; filename="a.pdf"; filename=b.pdf', ["a.pdf", "b.pdf"]),
        (b"attachment; filename*=utf-8''%C3%BC.pdf; filename=u.pdf", ["ü.pdf", "u.pdf"]),
        (b"attachment; filename*1*=%C3%BC; filename*0*=utf-8''a; filename*2=.pdf", ["aü.pdf"]),
        (b'attachment; filename="M\xc3\xa4rz.pdf"', ["März.pdf"]),
        (b'attachment; filename="M\xe4rz.pdf"', ["März.pdf"]),
        (b'attachment; filename="open.pdf', ["open.pdf"]),
        (b"attachment; filename=", []),
    ],
)
def test_file_names_are_unfolded_and_decoded(value: bytes, names: list[str]) -> None:
    assert parse_field(value).names("filename") == names


def test_octets_that_are_not_utf_8_are_a_flaw() -> None:
    assert parse_field(b"a; filename=\xe4").flaw is CharsetFlaw.GUESSED
    assert parse_field("a; filename=ä".encode()).flaw is None


def test_a_value_beyond_a_limit_is_cut_and_says_so() -> None:
    assert parse_field(b"a; x=" + b"y" * MAX_VALUE).cut
    assert parse_field(b"a" + b";b=c" * (MAX_PARAMETERS + 1)).cut
    assert not parse_field(b"a" + b";b=c" * MAX_PARAMETERS).cut


@pytest.mark.parametrize(
    "piece",
    [b';a="', b"(a", b';"', b"a=b ", b"; name=(", b"boundary=", b'\\"', b" ", b" (", b"; filename*=a", b"; name*1*=%C3",
     b";name==\\a", b"a", b"(a)", b"; name*=''%", b"\\", b"=?", b"="],
)  # fmt: skip
def test_values_are_parsed_in_linear_time(piece: bytes) -> None:
    value = piece * (MAX_VALUE // len(piece))
    began = time.process_time()

    for _ in range(20):
        found = parse_field(value)
        list(found.spellings("filename"))
        list(found.spellings("name"))

    assert time.process_time() - began < 1.0  # measured: at most 0.1 s


_tokens = st.sampled_from([
    b";", b"=", b'"', b"\\", b"(", b")", b" ", b"\r\n ", b"'", b"*", b"*0", b"*0*", b"*1*", b"%C3%BC", b"%", b"name",
    b"filename", b"boundary", b"utf-8''", b"=?utf-8?q?=C3=BC?=", b"x.exe", b"\xc3\xbc", b"\xe4", b"\0", b"/", b"text",
])  # fmt: skip


@examples(2_000)
@given(st.lists(_tokens, max_size=25).map(b"".join))
def test_any_octets_are_parsed_to_text_that_can_be_stored(value: bytes) -> None:
    found = parse_field(value)

    for word in ("name", "filename", "boundary"):
        for text in (*found.names(word), *found.readings(word), *found.spellings(word), found.value(word)):
            text.encode()
        assert set(found.names(word)) <= set(found.spellings(word))


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("utf-8", "utf_8"), ('"utf-8" (text)', "utf_8"), ("utf-8;", "utf_8"), ("iso-8859-1,", "cp1252"),
        ("charset=utf-8", "utf_8"), ("'windows-1250'", "cp1250"), ("utf-8?=", "utf_8"), ("<koi8-r>", "koi8_r"),
        ("koi8r", "koi8_r"), ("iso88591", "cp1252"), ("8859-1", "cp1252"), ("iso_8859-1:1987", "cp1252"),
        ("x-mac-roman", "mac_roman"), ("windows1252", "cp1252"), ("win-1251", "cp1251"), ("x-cp1250", "cp1250"),
        ("ksc_5601", "cp949"), ("unicode-1-1-utf-8", "utf_8"), ("csISOLatin9", "iso8859_15"),
        ("klingon", None), ("", None), ("x" * 5_000, None),
    ],
)  # fmt: skip
def test_a_charset_is_found_among_what_is_around_it(label: str, codec: str | None) -> None:
    assert codec_of(label) == codec
