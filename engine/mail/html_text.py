"""Extract readable text from HTML: for snippets, and for replies that have no text part. Linear in the input."""

import re
from collections.abc import Iterable
from typing import Final

from engine.mail.html_tokens import HtmlToken, TokenKind, tokens, unescaped

_BLOCKS: Final = """
    address article aside blockquote body caption center dd details dir div dl dt fieldset figcaption figure footer form
    header hr html legend li main menu nav ol optgroup option pre section summary table tbody tfoot thead tr ul
"""
_LINES: Final = frozenset(_BLOCKS.split())
_PARAGRAPHS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "p"})
_CELLS: Final = frozenset({"td", "th"})
_SHOWN: Final = frozenset({"noscript", "textarea", "xmp"})  # raw text that readers see
_blanks = re.compile(r"[ \t\n\f\r]+").sub


def html_to_text(html: str, max_characters: int | None = None) -> str:
    """Return the text of an HTML document with a line for each block, without NUL.

    Stops after about `max_characters` of text if given.
    """
    return text_of_tokens(html, tokens(html), max_characters)


def text_of_tokens(html: str, found: Iterable[HtmlToken], max_characters: int | None = None) -> str:
    """Return the text of these tokens of `html`; see `html_to_text`."""
    pieces: list[str] = []
    preformatted = length = 0
    for token in found:
        if token.kind is TokenKind.TEXT or (token.kind is TokenKind.RAW and token.name in _SHOWN):
            text = html[token.start : token.end]
            text = unescaped(text) if "&" in text else text
            pieces.append(text if preformatted else _blanks(" ", text))
            length += len(pieces[-1])
            if max_characters is not None and length > max_characters:
                break
        elif token.kind is TokenKind.START:
            pieces.append(_before(token.name))
            preformatted += token.name == "pre"
        elif token.kind is TokenKind.END:
            pieces.append(_after(token.name))
            preformatted = max(0, preformatted - (token.name == "pre"))
    return _tidied("".join(pieces).replace("\0", ""))


def _before(name: str) -> str:
    if name == "br" or name in _LINES:
        return "\n" if name != "li" else "\n- "
    return "\n\n" if name in _PARAGRAPHS else ""


def _after(name: str) -> str:
    if name in _CELLS:
        return " "
    if name in _LINES:
        return "\n"
    return "\n\n" if name in _PARAGRAPHS else ""


def _tidied(text: str) -> str:
    """Strip every line, and leave one empty line at most between two others."""
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        stripped = line.strip(" \t\f\xa0")
        if stripped or (lines and lines[-1]):
            lines.append(stripped)
    return "\n".join(lines).strip("\n")
