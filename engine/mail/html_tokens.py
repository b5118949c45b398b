"""Split HTML into tags and text as browsers do (HTML standard 13.2.5), in linear time and without a tree.

Used where a tree would cost too much: before sanitising, to bound what the parser gets, and to extract text.
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from html import unescape
from typing import Final, NamedTuple

_S = r"[ \t\n\f\r]"
_NAME = r"[a-zA-Z][^ \t\n\f\r/>]*+"
# A quote that is not closed before the end of the text is read as part of an attribute name: browsers drop all that
# follows it, so a reader that goes on sees more than they show. Each alternative is possessive: no backtracking.
_VALUE = rf"""{_S}*+={_S}*+(?:"[^"]*+"|'[^']*+'|[^ \t\n\f\r>"'][^ \t\n\f\r>]*+|(?=>))"""
_ATTRIBUTE = rf"[^ \t\n\f\r/>][^ \t\n\f\r/>=]*+(?:{_VALUE})?+"
_markup = re.compile(r"<(?=[a-zA-Z/!?])").search
_start_tag = re.compile(rf"<({_NAME})(?:[ \t\n\f\r/]++|{_ATTRIBUTE})*+>").match
_end_tag = re.compile(rf"</({_NAME})(?:[ \t\n\f\r/]++|{_ATTRIBUTE})*+>").match
# `?` at the end, not `?+`: before 3.11.5, Python misses matches of a possessive group with alternatives (cpython
# gh-106052). Nothing follows, so there is nothing to backtrack for.
_attribute = re.compile(
    r"([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)"
    rf"""(?:{_S}*+={_S}*+(?:"([^"]*+)"|'([^']*+)'|([^ \t\n\f\r>"'][^ \t\n\f\r>]*+)|(?=>)))?"""
).finditer
_comment_end = re.compile(r"--!?>").search
_short_comment = re.compile(r"<!---?>").match
_entity = re.compile(
    r"&(?:#[xX]0*+[0-9a-fA-F]{0,6}(?![0-9a-fA-F])|#0*+[0-9]{0,7}(?![0-9])|[a-zA-Z][a-zA-Z0-9]{1,31}+);?"
).sub

# Elements whose content is text up to their end tag (13.2.6.2, generic raw text and RCDATA).
RAW_TEXT: Final = frozenset({"iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title",
                             "xmp"})  # fmt: skip
_ends: Final = {name: re.compile(rf"</{name}(?=[ \t\n\f\r/>])", re.IGNORECASE).search for name in RAW_TEXT}


class TokenKind(IntEnum):
    """The kinds of tokens; RAW is the content of a RAW_TEXT element."""

    TEXT = 0
    START = 1
    END = 2
    RAW = 3


class HtmlToken(NamedTuple):
    """A tag or a run of text with its offsets in the HTML; `name` of a tag is in lower case."""

    kind: TokenKind
    start: int
    end: int
    name: str = ""


def tokens(html: str) -> Iterator[HtmlToken]:
    """Yield tags and text in order; comments, doctypes and an unfinished last tag are left out."""
    at = 0
    while (found := _markup(html, at)) is not None:
        start = found.start()
        if start > at:
            yield HtmlToken(TokenKind.TEXT, at, start)
        following = html[start + 1]
        if following in "!?":
            at = _after_declaration(html, start)
            continue
        closing = following == "/"
        tag = (_end_tag if closing else _start_tag)(html, start)
        if tag is None:
            if not closing or html[start + 2 : start + 3].isalpha():
                return
            at = _after(html, ">", start)  # a bogus comment
            continue
        at, name = tag.end(), tag[1].lower()
        yield HtmlToken(TokenKind.END if closing else TokenKind.START, start, at, name)
        if not closing and name in RAW_TEXT:
            ending = _ends[name](html, at)
            raw_end = len(html) if ending is None else ending.start()
            yield HtmlToken(TokenKind.RAW, at, raw_end, name)
            at = raw_end
    if at < len(html):
        yield HtmlToken(TokenKind.TEXT, at, len(html))


def attributes(html: str, tag: HtmlToken) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a start tag: the name in lower case, and the value without quotes and entities."""
    for found in _attribute(html, tag.start + 1 + len(tag.name), tag.end - 1):
        value = found[2] or found[3] or found[4] or ""
        yield found[1].lower(), unescaped(value) if "&" in value else value


def attribute_count(html: str, tag: HtmlToken) -> int:
    """Return the number of attributes of a start tag, with repeated ones."""
    return sum(1 for _ in _attribute(html, tag.start + 1 + len(tag.name), tag.end - 1))


def unescaped(text: str) -> str:
    """Replace character references by their characters; numbers of absurd length stay as they are."""
    return _entity(lambda found: unescape(found[0]), text)


def _after_declaration(html: str, start: int) -> int:
    """Return the offset after a comment, a doctype or a processing instruction."""
    if not html.startswith("<!--", start):
        return _after(html, ">", start)
    short = _short_comment(html, start)
    if short is not None:
        return short.end()
    ending = _comment_end(html, start + 4)
    return len(html) if ending is None else ending.end()


def _after(html: str, mark: str, start: int) -> int:
    found = html.find(mark, start)
    return len(html) if found < 0 else found + len(mark)
