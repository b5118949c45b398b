"""Headers read back: fields where they stand, words decoded, mailboxes found; hostile ones in linear time."""

import time
from email.header import Header, decode_header, make_header

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.address import BadAddress, Mailbox
from engine.mail.charsets import in_charset
from engine.mail.fields import (
    MAX_FIELDS,
    MAX_HEADER,
    BadHeader,
    decoded,
    divided,
    entries,
    fields,
    mailbox,
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


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=80).map(str.strip))
def test_encoded_words_of_the_standard_library_are_decoded(text: str) -> None:
    encoded = Header(text, "utf-8", maxlinelen=60).encode(linesep="\r\n")
    assert text_of(encoded.encode()).split() == str(make_header(decode_header(encoded))).split()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=?utf-8?q?J=C3=B6rg?=", "Jörg"),
        ("=?UTF-8?Q?J=C3?= =?utf-8?q?=B6rg?=", "Jörg"),  # a character cut in two
        ("=?utf-8?b?SsO2?= =?iso-8859-1?q?rg=E4?=", "Jörgä"),
        ("a =?utf-8?q?b?= c", "a b c"),
        ("=?utf-8*de?q?b?=", "b"),
        ("=?us-ascii?q?a_b?=", "a b"),
        ("=?no-such?q?=C3=BC?=", "ü"),
        ("=?unicode-escape?q?=5Cud800?=", r"\ud800"),
        ("=?utf-8?b?!!!?=", ""),
        ("=?utf-8?q?open", "=?utf-8?q?open"),
        ("=?utf-7?q?+2AA-?=", "+2AA-"),
        ("plain", "plain"),
    ],
)
def test_words_are_decoded_or_left(value: str, text: str) -> None:
    assert decoded(value) == text


def test_what_is_decoded_can_be_stored() -> None:
    for value in (b"=?utf-8?q?a=00=0D=0Ab?=", b"=?utf-16?b?AAA=?=", b"=?utf-7?q?+2AAAAA-?=", b"\xff\xfe", b"a\x07b"):
        text = text_of(value)
        text.encode()
        assert not any(letter in text for letter in "\0\r\n\x07")


@given(st.binary(max_size=60), st.text(max_size=12))
def test_any_octets_in_any_charset_become_text(octets: bytes, charset: str) -> None:
    assert isinstance(in_charset(octets, charset).encode(), bytes)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", []),
        (" , ;", []),
        ("a@b.test, c@d.test", ["a@b.test", "c@d.test"]),
        ('"Smith, Ann" <a@b.test>,c@d.test', ['"Smith, Ann" <a@b.test>', "c@d.test"]),
        (r'"a\", b" <a@b.test>', [r'"a\", b" <a@b.test>']),
        ("team: a@b.test, c@d.test;, e@f.test", ["a@b.test", "c@d.test", "e@f.test"]),
        ("undisclosed-recipients:;", []),
        ("(a, (b), c) a@b.test", ["(a, (b), c) a@b.test"]),
        ('"open, a@b.test', ['"open, a@b.test']),
        ("<a:b@c.test>", ["<a:b@c.test>"]),
    ],
)
def test_address_lists_are_divided(value: str, found: list[str]) -> None:
    assert list(entries(value)) == found


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("a@B.test", Mailbox("", "a@b.test")),
        ("<a@b.test>", Mailbox("", "a@b.test")),
        ("Ann <a@b.test>", Mailbox("Ann", "a@b.test")),
        ('"Smith, Ann" <a@b.test>', Mailbox("Smith, Ann", "a@b.test")),
        (r'"Ann \"A\"" <a@b.test>', Mailbox('Ann "A"', "a@b.test")),
        ("=?utf-8?q?J=C3=B6rg?= <a@b.test>", Mailbox("Jörg", "a@b.test")),
        ("a@b.test (Ann)", Mailbox("Ann", "a@b.test")),
        ("Ann (away) <a@b.test>", Mailbox("Ann", "a@b.test")),
        ("a@b.test <a@b.test>", Mailbox("a@b.test", "a@b.test")),
        ("=?utf-8?q?a=0Ab?= <a@b.test>", Mailbox("a b", "a@b.test")),
    ],
)
def test_mailboxes_are_read(entry: str, found: Mailbox) -> None:
    assert mailbox(entry) == found


@pytest.mark.parametrize(
    "entry",
    [
        "", "Ann", "a@b.test>", "Ann <>", "x@other.test <a@b.test>", "<x@other.test> <a@b.test>", 'x"y <a@b.test>',
        "a@b.test b", "a" * 10_001 + " <a@b.test>",
    ],
)  # fmt: skip
def test_what_two_readers_could_read_in_two_ways_is_no_mailbox(entry: str) -> None:
    with pytest.raises(BadAddress):
        mailbox(entry)


@pytest.mark.parametrize(
    "piece", ["=?", "=?x?q?", "=?utf-8?q?a?=", '"', "(", "<", ",", "\\", "a@", '"\\', "a@b.test (", "=?utf-8?b?YQ==?= "]
)
def test_hostile_values_take_linear_time(piece: str) -> None:
    value = piece * (MAX_HEADER // len(piece))
    began = time.thread_time()
    text_of(value.encode(), MAX_HEADER)
    for entry in list(entries(value))[:1_000]:
        try:
            mailbox(entry)
        except BadAddress:
            continue
    assert time.thread_time() - began < FAST_S


def test_a_header_of_folds_takes_linear_time() -> None:
    head = b"A: b\r\n" + b" c\r\n" * (MAX_HEADER // 4 - 4)
    began = time.thread_time()
    assert len(fields(head, len(head))) == 1
    assert time.thread_time() - began < FAST_S
