"""Read the inline markup of blocks: bold, italic, links, merge fields. Pure and linear.

Marks are as in Markdown: `**bold**`, `*italic*`, `[text](https://…)`, `\\*` for a plain star. A mark without its
partner is plain text. Tags of the template language pass through; a mark can't begin outside of a section and end in
it, so that the HTML stays well-formed with the section shown and without it.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from engine.base.errors import invalid, shown
from engine.mail import template
from engine.mail.template import BadTemplate, TemplatePart, escape

_special = re.compile(r"\\|\*|\[|\]|\n|\{\{").search
_address = re.compile(r"\]\(((?:\{\{[^{}\n]*\}\}|[^()\s{}]|\([^()\s{}]*\))++)\)").match
_control = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2028\u2029]").search
_unsafe_in_url = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]").search
_scheme = re.compile(r"(?:https?://|mailto:)[^/]", re.IGNORECASE).match
_field_first = re.compile(r"\{\{[^{}]*\}\}(?:[/?#]|$)").match
_tags_in_url = re.compile(r"\{\{+[^{}]*\}*")
_value_tag = re.compile(r"\{\{\s*([^{}\s]+)\s*\}\}").fullmatch
_section_alone = re.compile(r"\s*(\{\{\s*([#^/])\s*([^{}\s]+)\s*\}\})\s*").fullmatch
_ESCAPABLE: Final = frozenset("\\`*_{}[]()#+-.!<>~|&\"'")
_JOINER: Final = "\u2060"  # invisible; keeps two braces of plain text from being read as a tag
_BOLD, _ITALIC, _LINK = "**", "*", "["
_HTML_NAME: Final = {_BOLD: "strong", _ITALIC: "em"}


class Inline(Struct, frozen=True):
    """A piece of content in both forms, in which tags of the template language are still to be rendered."""

    html: str
    text: str


class SectionTag(Struct, frozen=True):
    """A tag that opens (`#`, `^`) or closes (`/`) a section and stands alone in its block or item."""

    source: str
    sigil: str
    name: str


def section_tag(source: str) -> SectionTag | None:
    """Return the tag if the text is nothing but a section tag."""
    found = _section_alone(source)
    return None if found is None else SectionTag(found[1], found[2], found[3])


def check_sections(tags: Sequence[tuple[str, SectionTag]]) -> None:
    """Raise the 400 unless the section tags of one list, each with its place, open and close in pairs."""
    opened: list[tuple[str, SectionTag]] = []
    for place, tag in tags:
        if tag.sigil != "/":
            _check_tags([tag.source, f"{{{{/{tag.name}}}}}"], place)
            opened.append((place, tag))
        elif not opened or opened.pop()[1].name != tag.name:
            raise invalid(place, f"`{place}`: `{tag.source}` closes no section that begins in the same list of blocks.")
    if opened:
        place, tag = opened[-1]
        raise invalid(
            place,
            f"`{place}`: the section `{tag.source}` is never closed. Add `{{{{/{tag.name}}}}}` in a block of its own.",
        )


def plain(source: str, place: str) -> Inline:
    """Return text without markup, in which values of the template language are inserted."""
    _check_characters(source, place)
    pieces: list[Inline] = []
    tags: list[str] = []
    at = 0
    while (start := source.find("{{", at)) >= 0:
        pieces.append(_literal(source[at:start]))
        tag, at = _tag(source, start, place)
        if tag.startswith("{{{"):
            raise invalid(place, f"`{place}` can't have `{shown(tag)}`: write it with two braces.")
        pieces.append(Inline(tag, tag))
        tags.append(tag)
    pieces.append(_literal(source[at:]))
    _check_tags(tags, place)
    return _joined(pieces)


def checked_url(url: str, place: str) -> str:
    """Return an address that can stand in a link; raise the 400 for any other."""
    problem = _url_problem(url)
    if problem is not None:
        raise invalid(place, f"`{place}` {problem}.")
    _check_tags(_tags_in_url.findall(url), place)
    return url


def markup(source: str, place: str, link_style: str) -> Inline:
    """Return text with its markup; links get the attributes `link_style`."""
    _check_characters(source, place)
    reader = _Reader(source.replace("\r\n", "\n").replace("\r", "\n"), place, link_style)
    return reader.read()


class _Reader:
    """The state of one pass over a text. `_open` holds, per open section, the marks that wait for their partner."""

    def __init__(self, source: str, place: str, link_style: str) -> None:
        self._source = source
        self._place = place
        self._link_style = link_style
        self._pieces: list[Inline] = []
        self._open: list[dict[str, int]] = [{}]  # a mark's kind and the index of its piece, in order of opening
        self._tags: list[str] = []

    def read(self) -> Inline:
        source, at = self._source, 0
        while (found := _special(source, at)) is not None:
            start = found.start()
            self._add(source[at:start])
            match found[0]:
                case "{{":
                    at = self._template_tag(start)
                case "\\":
                    at = self._escape(start)
                case "\n":
                    self._pieces.append(Inline("<br>\n", "\n"))
                    at = start + 1
                case "*":
                    at = self._emphasis(start)
                case "[":
                    self._open[-1].pop(_LINK, None)  # links don't nest: the inner one wins
                    at = self._opened(_LINK, start)
                case _:
                    at = self._link_end(start)
        self._add(source[at:])
        _check_tags(self._tags, self._place)
        return _joined(self._pieces)

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(_literal(text))

    def _template_tag(self, start: int) -> int:
        tag, end = _tag(self._source, start, self._place)
        self._tags.append(tag)
        self._pieces.append(Inline(tag, tag))
        if tag[2] in "#^":
            self._open.append({})
        elif tag[2] == "/" and len(self._open) > 1:
            self._open.pop()
        return end

    def _escape(self, start: int) -> int:
        letter = self._source[start + 1 : start + 2]
        if letter not in _ESCAPABLE:
            self._add("\\")
            return start + 1
        self._pieces.append(Inline("&#123;", "{") if letter == "{" else _literal(letter))
        return start + 2

    def _emphasis(self, start: int) -> int:
        """Read one or two stars; in `***` the mark that was opened last closes first."""
        marks = self._open[-1]
        last = next(reversed(marks), None)
        is_pair = self._source.startswith(_BOLD, start)
        if is_pair and last == _ITALIC and self._source.startswith("***", start):
            is_pair = False
        kind = _BOLD if is_pair else _ITALIC
        end = start + len(kind)
        opened = marks.get(kind)
        if opened is None:
            follows = self._source[end : end + 1]
            return self._opened(kind, start) if follows.strip() else self._plain(kind, end)
        if self._source[start - 1].isspace() or opened == len(self._pieces) - 1:
            return self._plain(kind, end)
        self._forget(kind)
        self._pieces[opened] = Inline(f"<{_HTML_NAME[kind]}>", "")
        self._pieces.append(Inline(f"</{_HTML_NAME[kind]}>", ""))
        return end

    def _link_end(self, start: int) -> int:
        opened = self._open[-1].get(_LINK)
        found = None if opened is None else _address(self._source, start)
        if opened is None or found is None:
            return self._plain("]", start + 1)
        url = found[1]
        problem = _url_problem(url)
        if problem is not None:
            raise invalid(self._place, f"`{self._place}` has a link whose URL {problem}.")
        self._tags += _tags_in_url.findall(url)
        self._forget(_LINK)
        label = _joined(self._pieces[opened + 1 :]).text
        self._pieces[opened] = Inline(f'<a href="{escape(url)}" {self._link_style}>', "")
        self._pieces.append(Inline("</a>", "" if label == url else f" ({url})"))
        return found.end()

    def _opened(self, kind: str, start: int) -> int:
        self._open[-1][kind] = len(self._pieces)
        return self._plain(kind, start + len(kind))

    def _plain(self, text: str, end: int) -> int:
        self._pieces.append(_literal(text))
        return end

    def _forget(self, kind: str) -> None:
        """Remove a mark, and those that were opened in it and have no partner."""
        marks = self._open[-1]
        while marks.popitem()[0] != kind:
            pass


def _tag(source: str, start: int, place: str) -> tuple[str, int]:
    """Return the template tag at `start` and where it ends; raise the 400 for one that is never closed."""
    closing = "}}}" if source.startswith("{{{", start) else "}}"
    closed = source.find(closing, start + 2)
    if closed < 0:
        raise invalid(
            place,
            f"`{place}`: `{shown(source[start:], 30)}` is never closed. End it with `{closing}`, or write `\\{{{{`.",
        )
    end = closed + len(closing)
    return source[start:end], end


def _check_tags(tags: Sequence[str], place: str) -> None:
    """Raise the 400 unless the tags of one text are well-formed and its sections closed."""
    if not tags:
        return
    source = "".join(tags)
    if any(_is_item(tag) for tag in tags):  # allowed here: the block may stand in a section that began in another one
        source = f"{{{{#item}}}}{source}{{{{/item}}}}"
    try:
        template.compile_part(source, TemplatePart.HTML)
    except BadTemplate as error:
        raise invalid(place, f"`{place}`: {error.problem}.") from None


def _is_item(tag: str) -> bool:
    return tag.strip("{} ") == template.ITEM


def _check_characters(source: str, place: str) -> None:
    found = _control(source)
    if found is not None:
        raise invalid(place, f"`{place}` contains the control character U+{ord(found[0]):04X}. Remove it.")


def _url_problem(url: str) -> str | None:
    """Return what is wrong with an address, as a predicate."""
    if _unsafe_in_url(_tags_in_url.sub("", url)):
        return "contains a space or a control character. Write %20 for a space"
    tags = _tags_in_url.findall(url)
    wrong = next((one for one in tags if _value_tag(one) is None or one[2] in "#^/!"), None)
    if wrong is not None:
        return f"has the tag `{shown(wrong, 40)}`; only values with two braces, such as `{{{{id}}}}`, can stand in it"
    if _scheme(url) is None and _field_first(url) is None:
        return (
            f"is {shown(url, 60)!r}; it must begin with https://, http:// or mailto:, or be a merge field such as "
            "`{{link}}`, alone or with a path behind it"
        )
    return None


def _literal(text: str) -> Inline:
    return Inline(escape(text), text)


def _joined(pieces: Sequence[Inline]) -> Inline:
    """Join pieces; where two braces of plain text meet in the text form, a joiner goes between them."""
    text: list[str] = []
    for piece in pieces:
        if piece.text.startswith("{") and text and text[-1].endswith("{"):
            text.append(_JOINER)
        if piece.text:
            text.append(piece.text)
    return Inline("".join(piece.html for piece in pieces), "".join(text))
