"""Turn the body parts of a message into text and HTML, for the mailbox, the search and the record of a message.

Pure and linear; never raises. All text is valid UTF-8.
"""

import html as html_escapes
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from engine.mail.body_parts import HTML, MailPart, decoded_part
from engine.mail.charsets import CharsetFlaw, decode_text
from engine.mail.html_text import html_to_text

_quote_depth = re.compile(r"(?:> ?(?=>))*>|").match
_SIGNATURE: Final = "-- "  # RFC 3676 4.3: never flowed


class PartText(NamedTuple):
    """The decoded text of a part with LF line ends, and the flaw of its charset.

    `damaged`: its transfer encoding is damaged or unknown. `octets`: the number of octets that were decoded.
    """

    text: str
    flaw: CharsetFlaw | None
    damaged: bool
    octets: int


def part_text(mime: bytes, part: MailPart, max_octets: int | None = None) -> PartText:
    """Decode a part, or the first `max_octets` of its encoded content."""
    octets, damaged = decoded_part(mime, part, max_octets)
    text, flaw = decode_text(octets, part.charset)
    if max_octets is not None and part.end - part.start > max_octets:
        text = text[:-1].rstrip("\ufffd")  # perhaps half a character
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if part.flowed:
        text = unflowed(text if max_octets is None else text[: max_octets // 4], delsp=part.delsp)
    return PartText(text, flaw, damaged, len(octets))


def joined_text(parts: Sequence[MailPart], texts: Sequence[str]) -> str | None:
    """Join the parts of a text body, with HTML turned to text; None if no part is plain text."""
    if all(part.kind == HTML for part in parts):
        return None
    return "\n".join(map(plain_text, parts, texts))


def joined_html(parts: Sequence[MailPart], texts: Sequence[str]) -> str | None:
    """Join the parts of an HTML body, with plain text turned to HTML; None if no part is HTML."""
    if all(part.kind != HTML for part in parts):
        return None
    return "\n".join(text if part.kind == HTML else _as_html(text) for part, text in zip(parts, texts, strict=True))


def plain_text(part: MailPart, text: str, max_characters: int | None = None) -> str:
    """Return the text of a decoded part for people."""
    return html_to_text(text, max_characters) if part.kind == HTML else text


def unflowed(text: str, *, delsp: bool) -> str:
    """Join the lines of format=flowed text that a blank at their end continues (RFC 3676 4)."""
    return "\n".join(_unflowed_lines(text.split("\n"), delsp=delsp))


def _unflowed_lines(lines: Sequence[str], *, delsp: bool) -> Iterator[str]:
    pieces: list[str] = []
    depth = ""
    for line in lines:
        quote = _quote_depth(line)
        marks = "" if quote is None else quote[0].replace(" ", "")
        content = line[quote.end() :] if quote is not None else line
        content = content.removeprefix(" ")  # stuffed: 4.4
        if pieces and (marks != depth or content == _SIGNATURE):
            yield _joined(depth, pieces)
            pieces = []
        depth = marks
        flows = content.endswith(" ") and content != _SIGNATURE
        pieces.append(content[:-1] if flows and delsp else content)
        if not flows:
            yield _joined(depth, pieces)
            pieces = []
    if pieces:
        yield _joined(depth, pieces)


def _joined(marks: str, pieces: Sequence[str]) -> str:
    text = "".join(pieces)
    return f"{marks} {text}" if marks else text


def _as_html(text: str) -> str:
    return "<p>" + html_escapes.escape(text, quote=False).replace("\n", "<br>\n") + "</p>"
