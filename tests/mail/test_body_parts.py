"""The choice of text, HTML and attachments (RFC 8621 4.1.4), and the text that mailbox, search and replies show."""

import pytest

from engine.mail.body_text import unflowed
from engine.mail.read import bodies
from engine.mail.received import summarise
from engine.mail.searchable_text import searchable_text
from engine.receiving.inbound_messages.bodies import bodies_of
from tests.mail.test_mime_tree import HTML, TEXT, parted

PDF = b"Content-Type: application/pdf\r\n\r\n%PDF"
PNG = b"Content-Type: image/png\r\nContent-ID: <logo>\r\n\r\npng"


def alternative(*parts: bytes) -> bytes:
    """Return a multipart/alternative."""
    return parted(b"a", *parts).replace(b"mixed", b"alternative", 1)


def related(*parts: bytes, start: bytes = b"") -> bytes:
    """Return a multipart/related."""
    return parted(b"r", *parts).replace(b"mixed", b"related" + start, 1)


def named(part: bytes, name: bytes) -> bytes:
    """Return a text part with a name in Content-Type."""
    return part.replace(b"\r\n\r\n", b"; name=%b\r\n\r\n" % name, 1)


def searched(mime: bytes) -> str:
    found = summarise(mime)
    return searchable_text(mime, found.text_parts, found.html_parts, 1_000)


def shown(mime: bytes) -> tuple[str | None, str | None, list[str]]:
    """Return text, HTML and the types of attachments."""
    found = bodies(mime)
    types = [one.content_type for one in summarise(mime).attachments]
    return found.text and found.text.strip(), found.html and found.html.strip(), types


HTML_AND_FOOTER = "<p>html</p>\n<p>_____<br>\nlist</p>"
FOOTER = b"Content-Type: text/plain\r\n\r\n_____\r\nlist"


@pytest.mark.parametrize(
    ("mime", "text", "html", "attached"),
    [
        (named(HTML, b"body.html"), None, "<p>html</p>", []),
        (named(TEXT, b"a.txt"), "words", None, []),
        (alternative(named(TEXT, b"a.txt"), named(HTML, b"a.html")), "words", "<p>html</p>", []),
        (parted(b"b", named(TEXT, b"a.txt"), named(TEXT, b"log.txt")), "words", None, ["text/plain"]),
        (parted(b"b", PDF, named(TEXT, b"log.txt")), None, None, ["application/pdf", "text/plain"]),
        (TEXT.replace(b"plain\r\n", b"plain\r\nContent-Disposition: attachment\r\n"), None, None, ["text/plain"]),
        (TEXT.replace(b"plain\r\n", b"plain; namespace=x\r\n"), "words", None, []),
        (parted(b"b", TEXT, named(b"Content-Type: text/csv\r\n\r\n1", b"a.csv")), "words", None, ["text/csv"]),
        (parted(b"b", HTML, FOOTER), "html\n_____\nlist", "<p>html</p>\n<p>_____<br>\nlist</p>", []),
        (parted(b"b", TEXT, PNG, TEXT), "words\nwords", None, ["image/png"]),
        (related(HTML, PNG), None, "<p>html</p>", ["image/png"]),
        (related(PNG, HTML), None, "<p>html</p>", ["image/png"]),
        (related(TEXT, HTML), "words", None, ["text/html"]),
        (related(TEXT, HTML.replace(b"html\r\n", b"html\r\nContent-ID: <r>\r\n"), start=b'; start="<r>"'), None,
         "<p>html</p>", ["text/plain"]),
        (alternative(TEXT, related(HTML, PNG)), "words", "<p>html</p>", ["image/png"]),
        (alternative(TEXT, parted(b"b", HTML, PDF, FOOTER)), "words", "<p>html</p>\n<p>_____<br>\nlist</p>",
         ["application/pdf"]),
        (alternative(parted(b"b", TEXT, PDF), HTML), "words", "<p>html</p>", ["application/pdf"]),
        (parted(b"b", alternative(TEXT, HTML), FOOTER), "words\n_____\nlist", HTML_AND_FOOTER, []),
        (parted(b"b", alternative(HTML), FOOTER), "html\n_____\nlist", HTML_AND_FOOTER, []),
        (alternative(TEXT, b"Content-Type: text/calendar; method=REQUEST\r\n\r\nBEGIN"), "words", None,
         ["text/calendar"]),
        (parted(b"b", TEXT, b"Content-Type: message/rfc822\r\n\r\n" + parted(b"c", HTML, PDF)), "words", None,
         ["message/rfc822"]),
        (PDF, None, None, ["application/pdf"]),
        (b"Content-Type: application; name=a.pdf\r\n\r\nx", None, None, ["application/octet-stream"]),
    ],
)  # fmt: skip
def test_body_and_attachments_are_told_apart(
    mime: bytes, text: str | None, html: str | None, attached: list[str]
) -> None:
    assert shown(mime) == (text, html, attached)


@pytest.mark.parametrize(
    ("mime", "author"),
    [
        (parted(b"b", HTML, FOOTER), "html"),
        (parted(b"b", TEXT, HTML), "words"),
        (parted(b"b", b"\r\n\r\n", HTML, FOOTER), "html"),
        (alternative(b"\r\n \r\n", HTML), "html"),
        (parted(b"b", TEXT, PNG, TEXT), "words\nwords"),
        (named(HTML, b"a.html"), "html"),
    ],
)
def test_snippet_search_and_reply_begin_with_the_words_of_the_author(mime: bytes, author: str) -> None:
    beginning = author.split("\n", maxsplit=1)[0]

    assert bodies_of(mime).reply_text == author
    assert summarise(mime).snippet.startswith(beginning)
    assert searched(mime).startswith(beginning)


def test_the_search_finds_words_of_every_body_part() -> None:
    mime = parted(b"b", HTML, FOOTER)

    assert searched(mime) == "html _____ list"


@pytest.mark.parametrize(
    ("text", "delsp", "expected"),
    [
        ("a \nb\n", False, "a b\n"),
        ("a \nb\n", True, "ab\n"),
        ("a\nb\n", False, "a\nb\n"),
        ("> a \n> b\nc\n", False, "> a b\nc\n"),
        ("> a \n>> b\n", False, "> a \n>> b\n"),
        (">> a \n> > b\n", False, ">> a b\n"),
        (" >a\n  b\n", False, ">a\n b\n"),
        ("a\n-- \nAnn \nB\n", False, "a\n-- \nAnn B\n"),
        ("a \n-- \nAnn\n", False, "a \n-- \nAnn\n"),
        ("a ", False, "a "),
    ],
)
def test_flowed_lines_are_joined(text: str, delsp: bool, expected: str) -> None:
    assert unflowed(text, delsp=delsp) == expected


def test_format_flowed_is_read() -> None:
    head = b"Content-Type: text/plain; charset=utf-8; format=Flowed; DelSp=Yes\r\n\r\n"

    assert bodies(head + "日本 \r\n語\r\n".encode()).text == "日本語\n"
