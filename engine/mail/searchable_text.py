"""Extract the beginning of a message's readable text, for the search in bodies of received messages. Never raises."""

from collections.abc import Sequence
from typing import Final

from engine.mail.body_parts import HTML, MailPart
from engine.mail.body_text import part_text, plain_text

_HTML_FOR_TEXT: Final = 8  # octets of HTML read for each character of its text: markup and style sheets come first
_MAX_HTML: Final = 65_536
_MAX_PARTS: Final = 20


def searchable_text(
    mime: bytes, text_parts: Sequence[MailPart], html_parts: Sequence[MailPart], max_characters: int
) -> str:
    """Return at most `max_characters` of the text of a message in one line, or of its HTML where the text is blank."""
    return _joined(mime, text_parts, max_characters) or _joined(mime, html_parts, max_characters)


def _joined(mime: bytes, parts: Sequence[MailPart], max_characters: int) -> str:
    lines: list[str] = []
    room = max_characters
    for part in parts[:_MAX_PARTS]:
        octets = min(_MAX_HTML, _HTML_FOR_TEXT * room) if part.kind == HTML else 4 * room
        text = plain_text(part, part_text(mime, part, octets).text, room)
        if line := _one_line(text, room):
            lines.append(line)
            room -= len(line) + 1
        if room <= 0:
            break
    return " ".join(lines)


def _one_line(text: str, max_characters: int) -> str:
    return " ".join(text[: 2 * max_characters].split())[:max_characters]
