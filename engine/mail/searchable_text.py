"""Extract the beginning of a message's readable text, for the search in bodies of received messages. Never raises."""

import re
from typing import Final

from engine.mail.charsets import decode_text
from engine.mail.html_text import html_to_text
from engine.mail.read import content, parts

_HTML_FOR_TEXT: Final = 8  # octets of HTML read for each character of its text: markup and style sheets come first
_MAX_HTML: Final = 65_536
_blanks = re.compile(r"\s+").sub


def searchable_text(mime: bytes, max_characters: int) -> str:
    """Return at most `max_characters` of the text of a message in one line; of its HTML if it has no text."""
    html = None
    for part in parts(mime):
        if part.attached:
            continue
        if part.kind == "text/html":
            html = html or part
            continue
        text, _ = decode_text(content(mime, part, 4 * max_characters)[0], part.charset)
        if line := _one_line(text, max_characters):
            return line
    if html is None:
        return ""
    octets = min(_MAX_HTML, _HTML_FOR_TEXT * max_characters)
    text, _ = decode_text(content(mime, html, octets)[0], html.charset)
    return _one_line(html_to_text(text, max_characters), max_characters)


def _one_line(text: str, max_characters: int) -> str:
    return _blanks(" ", text[: 2 * max_characters]).strip()[:max_characters]
