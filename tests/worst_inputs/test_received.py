"""Received messages, their HTML and their replies with the highest cost in reading and sanitising."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.mail.file_names import content_disposition, safe_filename
from engine.mail.html import sanitise
from engine.mail.html_limits import MAX_HTML
from engine.mail.html_text import html_to_text
from engine.mail.received import read_received, summarise
from engine.mail.reply_text import reply_text
from tests.harness.sampling import sampled
from tests.worst_inputs.costs import Content, check, filled, of_text, worst

_MIXED = b"Content-Type: multipart/mixed; boundary=B\r\n\r\n"
_BASE64 = b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n"


def file_name(name: str) -> None:
    """Make a file name safe, and name it in a download."""
    content_disposition(safe_filename(name))


def _html(piece: bytes, before: bytes = b"") -> Content:
    return filled(piece, before, size=MAX_HTML - len(before) - len(piece))


def _numbered(pattern: str, count: int) -> Content:
    return lambda: "".join(pattern % number for number in range(count)).encode()


def _nested() -> bytes:
    return b"".join(_MIXED.replace(b"=B", b"=B%d" % n) + b"--B%d\r\n" % n for n in range(10_000))


CASES = [
    *worst("received", read_received, {
        "folded Subject": filled(b"a\r\n ", b"Subject: "),
        "fields": filled(b"A:b\r\n"),
        "encoded words": filled(b"=?utf-8?q?a?=\r\n ", b"Subject: "),
        "parts": filled(b"--B\r\n\r\n\xff\r\n", _MIXED),
        "nested": _nested,
        "lines of flowed text": filled(b"> \n", b"Content-Type: text/plain; format=flowed; delsp=yes\r\n\r\n"),
        "text in a multi-octet charset": filled(b"\xa4\xa4\xff", b"Content-Type: text/plain; charset=big5\r\n\r\n"),
    }),
    *worst("received", summarise, {
        "addresses": filled(b"a@b.test,", b"To: "),
        "addresses with names": filled('"ü" <ü@ü.test>,'.encode(), b"To: "),
        "comments": filled(b"(a)", b"To: "),
        "quotes": filled(b'"\\', b"To: "),
        "encoded words within one another": filled(b"=?a?q?b\r\n ", b"To: ", b"?=\r\n", 100_000),
        "comments in Date": filled(b"(a) ", b"Date: "),
        "references": filled(b"<a@b>", b"References: "),
        "attachments": filled(b"--B\r\nContent-Type: a/b\r\n\r\n", _MIXED),
        "parameters of parts": filled(b"--B\r\nContent-Type: a/b" + b"; name*=''%" * 300 + b"\r\n\r\n", _MIXED),
        "lines like boundaries within multiparts": filled(
            b"--C\r\n", _MIXED + b"--B\r\n" + _MIXED.replace(b"=B", b"=D") + b"--D\r\n\r\n"
        ),
        "padded pieces of base64": filled(b"QQ==", _BASE64),
        "lines of uuencode": filled(b"M\xff\n", b"Content-Type: a/b\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\n"),
        "base64 with foreign letters": filled(b"A!" * 38, _BASE64),
        "HTML for the snippet": filled(b"<b>", b"Content-Type: text/html\r\n\r\n"),
    }),
    *worst("file name", of_text(file_name), {"executable extensions": filled("é.exe".encode(), size=60_000)}),
    *worst("HTML", of_text(sanitise), {
        "elements": _html(b"<p>"),
        "list items": _html(b"<li>x", b"<ol>"),
        "closed elements": _html(b"<b>x</b>"),
        "end tags alone": _html(b"a</x>"),
        "nested": _html(b"<div>"),
        "nested, closed in vain": _html(b"<span><div></span></div>"),
        "a tag without end": _html(b" a", b"<p"),
        "attributes": _html(b" a=b", b"<p"),
        "formatting that every paragraph opens again": _numbered("<p><b a=%d></p>", 600),
        "ampersands": _html(b"&"),
        "ampersands between elements": _html(b"&<br>"),
        "styles": _html(b"<p style='color:red;margin:0'>"),
        "declarations of one style": _html(b"a:b;", b"<p style='"),
        "cells": _html(b"<tr><td><font color=red>x", b"<table>"),
        "comments without end": _html(b"<!--"),
        "quotes without end": _html(b"<a b='"),
    }),
    *worst("HTML to text", of_text(html_to_text), {
        "elements": _html(b"<p>"),
        "character references": _html(b"&#0"),
    }),
    *worst("reply of HTML", of_text(lambda html: reply_text(None, html)), {
        "nested quotes": _html(b"<blockquote type=cite>"),
        "classes": _html(b"<p class='a b c'>"),
    }),
    *worst("reply", of_text(reply_text), {
        "From lines": _html(b"From: a\n"),
        "header lines": _html(b"From: a\nSent: 10:30\n"),
        "dated lines": _html(b"On 10:30 a@b.test\n"),
        "newlines": _html(b"a\n\n\n"),
        "quotes": _html(b">\n"),
        "signatures": _html(b"Sent from my\n"),
    }),
]  # fmt: skip


@pytest.mark.properties
@pytest.mark.parametrize(("read", "content"), sampled(CASES, 10))
def test_a_received_message_costs_little_cpu(read: Callable[[bytes], Any], content: Content) -> None:
    check(read, content())
