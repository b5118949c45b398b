"""Received messages, their HTML and their replies with the highest cost in reading and sanitising."""

from collections.abc import Callable

from engine.mail.file_names import content_disposition, safe_filename
from engine.mail.html import sanitise
from engine.mail.html_limits import MAX_HTML, MAX_NESTING
from engine.mail.html_text import html_to_text
from engine.mail.mime_tree import MAX_CANDIDATES, MAX_DEPTH, MAX_HEADER, MAX_PARTS
from engine.mail.parameters import MAX_PARAMETERS, MAX_VALUE
from engine.mail.received import read_received, summarise
from engine.mail.reply_text import reply_text
from loadtests.bench.readers.cases import SIZE_BYTES, FunctionCase

_HEADER = f"{MAX_HEADER // 1_024} KB, 1,000 fields and addresses"
_PARTS = f"{MAX_PARTS:,} parts, depth {MAX_DEPTH}"
_HTML = f"1 MiB, {MAX_NESTING:,} nested"
_MIXED = b"Content-Type: multipart/mixed; boundary=B\r\n\r\n"


def sanitised(html: bytes) -> None:
    """Sanitise HTML; one that exceeds a limit is omitted."""
    sanitise(html.decode())


def reply(text: bytes) -> None:
    """Extract the reply of a message with text alone."""
    reply_text(text.decode())


def reply_of_html(html: bytes) -> None:
    """Extract the reply of a message with HTML alone."""
    reply_text(None, html.decode())


def file_name(name: bytes) -> None:
    """Make a file name safe, and name it in a download."""
    content_disposition(safe_filename(name.decode()))


def _repeated(piece: bytes, before: bytes = b"", after: bytes = b"", size: int = SIZE_BYTES) -> Callable[[], bytes]:
    return lambda: before + piece * (size // len(piece)) + after


def _html(piece: bytes, before: bytes = b"") -> Callable[[], bytes]:
    return _repeated(piece, before, size=MAX_HTML - len(before) - len(piece))


def _numbered(pattern: str, count: int) -> Callable[[], bytes]:
    return lambda: "".join(pattern % number for number in range(count)).encode()


def _nested() -> bytes:
    return b"".join(_MIXED.replace(b"=B", b"=B%d" % n) + b"--B%d\r\n" % n for n in range(10_000))


_MESSAGES = (
    FunctionCase("received", "folded Subject", _HEADER, _repeated(b"a\r\n ", b"Subject: "), read_received),
    FunctionCase("received", "fields", _HEADER, _repeated(b"A:b\r\n"), read_received),
    FunctionCase("received", "encoded words", _HEADER, _repeated(b"=?utf-8?q?a?=\r\n ", b"Subject: "), read_received),
    FunctionCase("received", "addresses", _HEADER, _repeated(b"a@b.test,", b"To: "), summarise),
    FunctionCase(
        "received", "addresses with names", _HEADER, _repeated('"ü" <ü@ü.test>,'.encode(), b"To: "), summarise,
    ),
    FunctionCase("received", "comments", _HEADER, _repeated(b"(a)", b"To: "), summarise),
    FunctionCase("received", "quotes", _HEADER, _repeated(b'"\\', b"To: "), summarise),
    FunctionCase(
        "received", "encoded words within one another", _HEADER,
        _repeated(b"=?a?q?b\r\n ", b"To: ", b"?=\r\n", 100_000), summarise,
    ),
    FunctionCase("received", "comments in Date", _HEADER, _repeated(b"(a) ", b"Date: "), summarise),
    FunctionCase("received", "references", _HEADER, _repeated(b"<a@b>", b"References: "), summarise),
    FunctionCase("received", "parts", _PARTS, _repeated(b"--B\r\n\r\n\xff\r\n", _MIXED), read_received),
    FunctionCase("received", "attachments", _PARTS, _repeated(b"--B\r\nContent-Type: a/b\r\n\r\n", _MIXED), summarise),
    FunctionCase("received", "nested", _PARTS, _nested, read_received),
    FunctionCase(
        "received", "parameters of parts", f"{MAX_PARAMETERS} of each field, {MAX_VALUE:,} octets",
        _repeated(b"--B\r\nContent-Type: a/b" + b"; name*=''%" * 300 + b"\r\n\r\n", _MIXED), summarise,
    ),
    FunctionCase(
        "received", "lines like boundaries within multiparts", f"{MAX_CANDIDATES:,} of them",
        _repeated(b"--C\r\n", _MIXED + b"--B\r\n" + _MIXED.replace(b"=B", b"=D") + b"--D\r\n\r\n"), summarise,
    ),
    FunctionCase(
        "received", "padded pieces of base64", "message size",
        _repeated(b"QQ==", b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n"), summarise,
    ),
    FunctionCase(
        "received", "lines of uuencode", "message size",
        _repeated(b"M\xff\n", b"Content-Type: a/b\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\n"), summarise,
    ),
    FunctionCase(
        "received", "lines of flowed text", "1 MiB of text",
        _repeated(b"> \n", b"Content-Type: text/plain; format=flowed; delsp=yes\r\n\r\n"), read_received,
    ),
    FunctionCase(
        "received", "base64 with foreign letters", "message size",
        _repeated(b"A!" * 38, b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n"), summarise,
    ),
    FunctionCase(
        "received", "HTML for the snippet", "64 KiB", _repeated(b"<b>", b"Content-Type: text/html\r\n\r\n"), summarise,
    ),
    FunctionCase("received", "text in a multi-octet charset", "1 MiB of text",
                 _repeated(b"\xa4\xa4\xff", b"Content-Type: text/plain; charset=big5\r\n\r\n"), read_received),
    FunctionCase(
        "file name", "executable extensions", "800 characters", _repeated("é.exe".encode(), size=60_000), file_name,
    ),
)  # fmt: skip
_DOCUMENTS = (
    FunctionCase("HTML", "elements", _HTML, _html(b"<p>"), sanitised),
    FunctionCase("HTML", "list items", _HTML, _html(b"<li>x", b"<ol>"), sanitised),
    FunctionCase("HTML", "closed elements", _HTML, _html(b"<b>x</b>"), sanitised),
    FunctionCase("HTML", "end tags alone", _HTML, _html(b"a</x>"), sanitised),
    FunctionCase("HTML", "nested", _HTML, _html(b"<div>"), sanitised),
    FunctionCase("HTML", "nested, closed in vain", _HTML, _html(b"<span><div></span></div>"), sanitised),
    FunctionCase("HTML", "a tag without end", "500 attributes", _html(b" a", b"<p"), sanitised),
    FunctionCase("HTML", "attributes", "500 attributes", _html(b" a=b", b"<p"), sanitised),
    FunctionCase("HTML", "formatting that every paragraph opens again", "200,000 of them",
                 _numbered("<p><b a=%d></p>", 600), sanitised),
    FunctionCase("HTML", "ampersands", "their number times the length", _html(b"&"), sanitised),
    FunctionCase("HTML", "ampersands between elements", _HTML, _html(b"&<br>"), sanitised),
    FunctionCase("HTML", "styles", _HTML, _html(b"<p style='color:red;margin:0'>"), sanitised),
    FunctionCase("HTML", "declarations of one style", _HTML, _html(b"a:b;", b"<p style='"), sanitised),
    FunctionCase("HTML", "cells", _HTML, _html(b"<tr><td><font color=red>x", b"<table>"), sanitised),
    FunctionCase("HTML", "comments without end", _HTML, _html(b"<!--"), sanitised),
    FunctionCase("HTML", "quotes without end", _HTML, _html(b"<a b='"), sanitised),
    FunctionCase("HTML to text", "elements", "HTML size", _html(b"<p>"), lambda html: html_to_text(html.decode())),
    FunctionCase(
        "HTML to text", "character references", "HTML size", _html(b"&#0"), lambda html: html_to_text(html.decode()),
    ),
    FunctionCase("reply of HTML", "nested quotes", "HTML size", _html(b"<blockquote type=cite>"), reply_of_html),
    FunctionCase("reply of HTML", "classes", "HTML size", _html(b"<p class='a b c'>"), reply_of_html),
    FunctionCase("reply", "From lines", "3,000 lines", _html(b"From: a\n"), reply),
    FunctionCase("reply", "header lines", "3,000 lines", _html(b"From: a\nSent: 10:30\n"), reply),
    FunctionCase("reply", "dated lines", "3,000 lines", _html(b"On 10:30 a@b.test\n"), reply),
    FunctionCase("reply", "newlines", "3,000 lines", _html(b"a\n\n\n"), reply),
    FunctionCase("reply", "quotes", "text size", _html(b">\n"), reply),
    FunctionCase("reply", "signatures", "12 lines", _html(b"Sent from my\n"), reply),
)  # fmt: skip
CASES = _MESSAGES + _DOCUMENTS
