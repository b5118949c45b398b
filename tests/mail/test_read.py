"""Stored messages read back: ours exactly, hostile ones within bounds and with one error at most."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.compose import Draft, compose
from engine.mail.mime_tree import MAX_DEPTH, MAX_PARTS
from engine.mail.read import Bodies, UnreadableMail, attachment, bodies
from tests.mail.drafts import THOROUGH, drafts


def lines_of(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


@THOROUGH
@given(drafts(utf8=True))
def test_what_was_composed_is_read_back(draft: Draft) -> None:
    composed = compose(draft)

    found = bodies(composed.mime)

    if draft.text is not None:
        assert found.text is not None
        assert lines_of(found.text) == lines_of(draft.text)
    else:
        assert found.text == (None if draft.html is not None else "")
    assert (found.html is None) == (draft.html is None)
    assert lines_of(found.html or "") == lines_of(draft.html or "")
    for index, sent in enumerate(draft.attachments):
        assert attachment(composed.mime, composed.places[index]) == sent.content
    with pytest.raises(UnreadableMail):
        attachment(composed.mime, len(draft.attachments))
    with pytest.raises(UnreadableMail):
        attachment(composed.mime, -1)


def single(head: str, body: bytes) -> bytes:
    return f"From: a@b.test\r\n{head}\r\n\r\n".encode("latin-1") + body


@pytest.mark.parametrize(
    ("head", "body", "text"),
    [
        ("X-A: b", "Grüße\r\n".encode(), "Grüße\n"),
        ("X-A: b", b"Gr\xfc\xdfe", "Grüße"),
        ("Content-Type: text/plain; charset=iso-8859-1", b"Gr\xfc\xdfe", "Grüße"),
        ('Content-Type: TEXT/Plain; Charset="ISO-8859-1"', b"\xfc", "ü"),
        ("Content-Type: text/plain;\r\n\tcharset=windows-1252", b"\x80", "€"),
        ("Content-Type: text/plain; charset=us-ascii", "ü".encode(), "ü"),
        ("Content-Type: text/plain; charset=no-such-thing", "ü".encode(), "ü"),
        ("Content-Type: text/plain; charset=", b"a", "a"),
        ("Content-Type: text/plain; charset=rot13", b"uryyb", "uryyb"),
        ("Content-Type: text/plain; charset=hex", b"6162", "6162"),
        ("Content-Type: text/plain; charset=unicode_escape", rb"\ud800", r"\ud800"),
        ("Content-Type: text/plain; charset=idna", b"a.b", "a.b"),
        ("Content-Type: text/plain; charset=undefined", b"a", "a"),
        ("Content-Type: text/plain; charset=utf-7", b"+2AA-", "+2AA-"),
        ('Content-Type: text/plain; charset="a\0b"', b"a", "a"),
        ("Content-Type: text/plain; charset=utf-16", b"\xff\xfea", "�"),
        ("Content-Type: nonsense", b"a", "a"),
        ("Content-Type:", b"a", "a"),
        ("Content-Type: multipart/mixed", b"a", "a"),
        ("Content-Type: multipart/mixed; boundary=x", b"no delimiter", "no delimiter"),
        ("Content-Transfer-Encoding: BASE64", b"YQ", "a"),
        ("Content-Transfer-Encoding: base64", b"Y*Q==garbage", "a\x81"),
        ("Content-Transfer-Encoding: base64", b"YWJjZ", "abc"),
        ("Content-Transfer-Encoding: quoted-printable", b"a=3Db=\r\nc=ZZ =", "a=bc=ZZ "),
        ("Content-Transfer-Encoding: x-unknown", b"a", "a"),
    ],
)
def test_broken_declarations_fall_back_to_something_readable(head: str, body: bytes, text: str) -> None:
    found = bodies(single(head, body)).text

    assert found is not None
    if "garbage" in body.decode("latin-1"):
        assert found.startswith("a")
    else:
        assert found == text


@pytest.mark.parametrize("mime", [b"", b"\r\n", b"\n", b"From: a", b"Content-Type: text/plain"])
def test_almost_nothing_is_an_empty_text(mime: bytes) -> None:
    assert bodies(mime) == Bodies("", None)


def test_line_ends_may_be_bare() -> None:
    mime = (
        b"Content-Type: multipart/alternative; boundary=x\n\n--x\n\ntext\n--x\nContent-Type: text/html\n\n<p>\n--x--\n"
    )

    assert bodies(mime) == Bodies("text", "<p>")


MIXED = (
    b'Content-Type: multipart/mixed; boundary="a b"\r\n\r\npreamble\r\n--a b\r\n\r\nbody\r\n--a b  \r\n'
    b"Content-Disposition: attachment\r\n\r\none\r\n--a b\r\nContent-Type: message/rfc822\r\n\r\n"
    b"Content-Type: text/plain\r\n\r\ninner\r\n--a bc\r\nnot a delimiter\r\n--a b\r\n"
    b"Content-Type: text/html; name*=utf-8''x.html\r\n\r\n<p>\r\n--a b--\r\nepilogue\r\n--a b\r\n\r\nnever\r\n"
)


def test_parts_are_told_apart_as_rfc_2046_says() -> None:
    assert bodies(MIXED) == Bodies("body", None)
    assert attachment(MIXED, 0) == b"one"
    assert attachment(MIXED, 1) == b"Content-Type: text/plain\r\n\r\ninner\r\n--a bc\r\nnot a delimiter"
    assert attachment(MIXED, 2) == b"<p>"
    with pytest.raises(UnreadableMail):
        attachment(MIXED, 3)


def test_a_message_that_was_cut_off_keeps_what_came() -> None:
    assert bodies(b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nhalf a te") == Bodies("half a te", None)


def nested(depth: int) -> bytes:
    head = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(depth))
    return head + b"\r\ndeep\r\n"


def test_nesting_is_bounded() -> None:
    assert bodies(nested(MAX_DEPTH)).text == "deep\n"
    with pytest.raises(UnreadableMail):
        bodies(nested(MAX_DEPTH + 1))
    with pytest.raises(UnreadableMail):
        bodies(nested(3000))


def test_the_number_of_parts_is_bounded() -> None:
    head = b"Content-Type: multipart/mixed; boundary=x\r\n\r\n"
    part = b"--x\r\nContent-Type: image/png\r\n\r\na\r\n"

    assert attachment(head + part * (MAX_PARTS - 1), MAX_PARTS - 2) == b"a\r\n"
    with pytest.raises(UnreadableMail):
        bodies(head + part * 50_000)


MEBIBYTE = 1024 * 1024
HOSTILE = {
    "folded field": b"Subject: " + b"a\r\n " * MEBIBYTE + b"\r\n\r\nx",
    "many fields": b"X: y\r\n" * MEBIBYTE + b"\r\nx",
    "endless field": b"Content-Type: " + b"a" * 5 * MEBIBYTE,
    "many parameters": b"Content-Type: text/plain" + b"; a=b" * MEBIBYTE + b"\r\n\r\nx",
    "open quotes": b"Content-Type: text/plain" + b';a="' * MEBIBYTE + b"\r\n\r\nx",
    "false delimiters": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n" + b"\n--xy" * MEBIBYTE,
    "inline delimiters": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n" + b"--x" * MEBIBYTE,
    "empty parts": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n" + b"--x\n" * MEBIBYTE,
    "blank lines": b"\r\n" * (3 * MEBIBYTE),
    "carriage returns": b"\r" * (5 * MEBIBYTE),
    "one boundary at every depth": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n" * 50_000,
    "soft breaks": b"Content-Transfer-Encoding: quoted-printable\r\n\r\n" + b"=\r\n" * MEBIBYTE,
    "padding": b"Content-Transfer-Encoding: base64\r\n\r\n" + b"=" * (5 * MEBIBYTE),
    "blanks after a delimiter": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n" + (b"--x" + b" " * 999) * 5000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages_take_little_time(name: str) -> None:
    began = time.process_time()

    for read in (bodies, lambda mime: attachment(mime, 5)):
        with suppress(UnreadableMail):
            read(HOSTILE[name])

    assert time.process_time() - began < 1.0  # measured: at most 0.1 s


_tokens = st.sampled_from([
    b"\r\n", b"\n", b"\r", b"--x", b"--x--", b"--", b"Content-Type: multipart/mixed; boundary=x", b"boundary",
    b"=", b";", b'"',
    b"Content-Type: text/plain", b"; charset=utf-8", b"Content-Transfer-Encoding: base64", b"YWJj",
    b" ", b"\0", b"\xff",
    b"Content-Disposition: attachment; filename*99999999999999999999*=x", b"Content-Type: text/html", b"\\", b":",
    b"Content-Type: multipart/mixed; boundary=\"\xc3\xa9\"", b"Content-Type: multipart/mixed; boundary=\"\\\"\"",
])  # fmt: skip


@THOROUGH
@given(st.lists(_tokens, max_size=30).map(b"".join), st.integers(0, 3))
def test_any_octets_give_an_answer_or_the_one_error(mime: bytes, index: int) -> None:
    found = bodies(mime)
    for text in (found.text, found.html):
        (text or "").encode()
    with suppress(UnreadableMail):
        assert isinstance(attachment(mime, index), bytes)
