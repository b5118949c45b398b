"""Encoded words are decoded as lenient mail programs do; well-formed ones as Python's decoder does."""

import re
import time
from email.errors import HeaderParseError
from email.header import Header, decode_header, make_header

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.mail.charsets import CharsetFlaw
from engine.mail.encoded_words import decoded, decoded_text, hidden_control, hides_break, readings, unfolded
from engine.mail.fields import MAX_HEADER
from tests.harness.sampling import examples

FAST_S = 3.0
written = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=80).map(str.strip)


@given(written)
def test_encoded_words_of_the_standard_library_are_decoded(text: str) -> None:
    encoded = Header(text, "utf-8", maxlinelen=60).encode(linesep="\r\n")
    assert decoded(unfolded(encoded.encode())).split() == str(make_header(decode_header(encoded))).split()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=?utf-8?q?J=C3=B6rg?=", "Jörg"),
        ("=?UTF-8?Q?J=C3?= =?utf-8?q?=B6rg?=", "Jörg"),  # a character cut in two
        ("=?utf-8?b?SsO2?= =?iso-8859-1?q?rg=E4?=", "Jörgä"),
        ("a =?utf-8?q?b?= c", "a b c"),
        ("Re:=?utf-8?q?b?=c", "Re:bc"),
        ("=?utf-8*de?q?b?=", "b"),
        ("=?us-ascii?q?a_b?=", "a b"),
        ("=?no-such?q?=C3=BC?=", "ü"),
        ("=??q?=C3=BC?=", "ü"),
        ('=? "utf-8" ?q?=C3=BC?=', "ü"),
        ("=?unicode-escape?q?=5Cud800?=", r"\ud800"),
        ("=?utf-8?b?!!!?=", "=?utf-8?b?!!!?="),
        ("=?utf-8?q?open", "=?utf-8?q?open"),
        ("=?utf-8?x?YQ?=", "=?utf-8?x?YQ?="),
        ("=?utf-7?q?+2AA-?=", "+2AA-"),
        ("=?utf-8?q??=", ""),
        ("plain", "plain"),
    ],
)
def test_words_are_decoded_or_left(value: str, text: str) -> None:
    assert decoded(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"=?ISO-8859-1?Q?Price list for all pr?=\r\n =?ISO-8859-1?Q?e-orders?=", "Price list for all pre-orders"),
        (b"=?utf-8?Q?Ready_now??=", "Ready now?"),
        (b"=?utf-8?Q?Really?=21?= =?utf-8?Q?=3F?=", "Really?!?"),
        (b"=?utf-8?Q?a?=42 =?utf-8?Q?=43?=", "a42 C"),
        (b"=?utf-8?Q?Is_it?_Yes=3F?= ok", "Is it? Yes? ok"),
        (b"=?utf-8?Q?a\r\n b?=", "a b"),
        (b"=?utf-8?B?SGVs bG8=?=", "Hello"),
        (b"=?utf-8?B?SGVsbG8=IFdvcmxk?=", "Hello World"),
        (b"=?utf-8?B?SGVsbG8=?= =?utf-8?B?IFdvcmxk?=", "Hello World"),
        (b"=?utf-8?B?SGVsbG8?=", "Hello"),
        (b"=?utf-8?B?SGVs-bG8=?=", "Hello"),
        (b"=?utf-8?Q?50=_off_=?=", "50= off ="),
        (b"=?utf-8?q?a?==?utf-8?q?b?=", "ab"),
        (b"=?utf-8?q?open =?utf-8?q?word?=", "=?utf-8?q?open word"),
        (b"=?utf-8?Q?J\xc3\xbcrgen?=", "Jürgen"),
        (b"=?iso-8859-1?Q?J\xc3\xbcrgen?=", "Jürgen"),
        (b"=?iso-8859-1?Q?J\xfcrgen?=", "Jürgen"),
        (b"=?koi8-r?Q?\xc4\xc1?=", "да"),
        (b"=?utf-8?b?=w7w?=", "ü"),
        (b"=?utf-8?b?=w?=", ""),
    ],
)
def test_words_with_blanks_question_marks_raw_octets_or_padding_are_decoded(value: bytes, text: str) -> None:
    assert decoded_text(unfolded(value)) == (text, None)


@pytest.mark.parametrize(
    ("value", "text", "flaw"),
    [
        (b"M\xe4rz", "März", CharsetFlaw.GUESSED),
        (b"M\xe4rz =?utf-8?q?=C3=BC?=", "März ü", CharsetFlaw.GUESSED),
        (b"=?utf-8?Q?M\xe4rz?=", "März", CharsetFlaw.GUESSED),
        (b"=?no-such?q?=C3=BC?=", "ü", CharsetFlaw.UNKNOWN),
        (b"=?utf-8?q?=C3?=", "\ufffd", CharsetFlaw.DAMAGED),
    ],
)
def test_a_doubt_about_the_characters_is_named(value: bytes, text: str, flaw: CharsetFlaw) -> None:
    assert decoded_text(unfolded(value)) == (text, flaw)


@pytest.mark.parametrize(
    "value",
    [
        b"=?utf-8?Q?hello =0D=0ABcc: a@b.test?=",
        b"=?utf-8?Q?hello?=0D=0ABcc:?=",
        b"=?utf-8?Q?hello?=0d=0aBcc:?=",
        b"=?utf-8?B?SGVsbG8=DQpCY2M6?=",
        b"=?utf-8?Q?\xc3\xbc=0A?=",
        b"=?utf-8?Q?a\r\n =0Ab?=",
        b"=?utf-8?q?a=0Ab =?utf-8?q?word?=",
        b"=?utf-8?q?word =?utf-8?q?a=0Ab?=",
        b"=? utf-8 ?q?a=0Ab?=",
        b"=??q?a=0Ab?=",
        b"=?utf-7?q?+AAo- x?=",
        b"=?utf-8?q?=3D=3Futf-8=3Fq=3F=3D0A=3F=3D?=",
    ],
)
def test_a_control_character_is_found_in_every_word_that_a_program_decodes(value: bytes) -> None:
    assert hidden_control(value) in {"\n", "\r"}


def test_text_that_looks_like_encoded_words_may_have_other_controls_only_where_it_is_decoded_twice() -> None:
    text = "=?utf-8?q?Fake?=100% = good?= =?utf-8?q?Fake?="  # "=10" is a control character
    value = Header(text, "utf-8").encode().encode()

    assert hidden_control(text.encode()) == "\x10"
    assert hidden_control(value) is None
    assert not hides_break(text)
    assert hides_break("=?utf-8?q?Fake?=0A?=")


@given(st.text("=?utf-8qb_ 0AaC3\xfc(,", max_size=60))
@example("=?utf-8?q?=?utf-8?q?a?=")
@examples(2_000)
def test_text_without_words_stays_and_text_around_them_is_kept(text: str) -> None:
    found = decoded(text)
    if re.search(r"=\?[^?]*\?[bq]\?.*\?=", text, re.DOTALL | re.IGNORECASE) is None:
        assert found == text
    assert all(isinstance(one.encode(), bytes) for one in readings(text))


# Python: reads blanks and `?` within a word as we do, but neither raw octets nor an unknown charset.
words = st.builds(
    lambda charset, encoding, text: Header(text, charset).encode() if encoding is None else f"=?{charset}?q?{text}?=",
    st.sampled_from(["utf-8", "iso-8859-1", "us-ascii"]),
    st.sampled_from([None, "q"]),
    st.text("abc XYZ?_.!", min_size=1, max_size=12).map(lambda text: f"x{text}x"),
)


@given(st.lists(st.one_of(words, st.sampled_from(["and", "a,b", "="])), max_size=5).map(" ".join))
@examples(2_000)
def test_lenient_words_agree_with_the_decoder_of_the_standard_library(value: str) -> None:
    try:
        theirs = str(make_header(decode_header(value)))
    except (HeaderParseError, UnicodeDecodeError, LookupError):
        return
    # Python splits words at every second `?` pair and may keep or add one blank at their borders.
    assert decoded(value).split() == theirs.split() or "".join(decoded(value).split()) == "".join(theirs.split())


@pytest.mark.parametrize(
    "piece",
    [
        "=?",
        "=?x?q?",
        "=?utf-8?q?a?=",
        "=?utf-8?b?YQ==?= ",
        "=?a?b?a=",
        "=?a?b??=",
        "=?a?q?=0A",
        "?=",
        "=?a?q?b",
        "?=00",
    ],
)
def test_hostile_words_take_linear_time(piece: str) -> None:
    value = piece * (MAX_HEADER // len(piece)) + "?="
    began = time.thread_time()
    readings(value)
    hidden_control(value.encode())
    assert time.thread_time() - began < FAST_S
