"""Bound what the HTML parser of the sanitiser gets: its cost is not linear in the size.

A browser's tree construction (HTML standard 13.2.6) is quadratic in three things: open elements, attributes of a tag,
and formatting elements that were not closed, which it opens again in every following paragraph; html5ever's is in the
character references of one text, too. Measured with nh3 0.3.8: 50,000 nested `<div>` take 5.6 s, a tag with 100,000
attributes 2.3 s, 1 MiB of `&` 10 s, and 16 KB of `<p><b a=1></p>` make 3.5 MB.

`exceeded_limit` walks over the tags once and keeps a stack that always holds at least the elements that a parser
would have open: an end tag removes an element only where every parser would close it.
"""

import re
from enum import StrEnum
from typing import Final

from engine.mail.html_tokens import TokenKind, attribute_count, tokens

MAX_HTML: Final = 1024 * 1024  # characters
MAX_NESTING: Final = 2_000
MAX_ATTRIBUTES: Final = 500  # of one tag
# Elements in which a parser reads tags in another way; what they hide can't be judged without a full parser.
MAX_UNUSUAL: Final = 100 * 1024  # characters of a document with such an element
_MAX_REOPENED: Final = 200_000  # formatting elements that paragraphs open again, summed
_MAX_REFERENCES: Final = 10_000_000_000  # ampersands of a text, times its length, summed
_MAX_STEPS: Final = 500_000  # of searches in the stack
_SHORT_TAG: Final = 2 * MAX_ATTRIBUTES  # characters: the shortest attribute has one, and a blank before it

_unusual = re.compile(
    r"<(?:svg|math|select|xmp|plaintext|noembed|noframes|iframe|noscript|textarea|frameset|template)", re.IGNORECASE
).search
_any_tag = re.compile(r"<[a-zA-Z]").findall
_VOID: Final = frozenset({
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "image", "img", "input", "keygen",
    "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
_SHOWN: Final = frozenset({"br", "hr", "img", "wbr"})  # void elements that are never moved or dropped
_FORMATTING: Final = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})  # fmt: skip
_SPECIAL: Final = frozenset({
    "address", "article", "aside", "blockquote", "button", "center", "dd", "details", "dir", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h", "header", "hgroup", "li", "listing", "main", "menu",
    "nav", "ol", "p", "pre", "search", "section", "summary", "ul",
})  # fmt: skip
_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})  # the end tag of one closes any other
_SCOPES: Final = frozenset({"applet", "marquee", "object", "table"})  # no end tag reaches beyond them
_CELLS: Final = frozenset({"caption", "td", "th"})
_TABLE_PARTS: Final = frozenset({"colgroup", "tbody", "tfoot", "thead", "tr"})
_UNTRACKED: Final = frozenset({"body", "head", "html"})
_ITEMS: Final = {"li": frozenset({"li"}), "dd": frozenset({"dd", "dt"}), "dt": frozenset({"dd", "dt"})}
_PASSED: Final = frozenset({"address", "div", "p"})  # by the start tag of an item that looks for an open item
_LISTS: Final = frozenset({"ol", "ul"})


class HtmlLimit(StrEnum):
    """The reason why an HTML document is not sanitised."""

    SIZE = "too_large"
    NESTING = "nested_too_deep"
    ATTRIBUTES = "too_many_attributes"
    FORMATTING = "too_complex"


def exceeded_limit(html: str) -> HtmlLimit | None:
    """Return the limit that a document exceeds, or None. Linear in its size."""
    if len(html) > MAX_HTML:
        return HtmlLimit.SIZE
    if _unusual(html) is not None:
        if len(html) > MAX_UNUSUAL:
            return HtmlLimit.FORMATTING
        if len(_any_tag(html)) > MAX_NESTING:
            return HtmlLimit.NESTING
    stack = _OpenElements()
    for token in tokens(html):
        if token.kind is TokenKind.START:
            if token.end - token.start > _SHORT_TAG:
                if attribute_count(html, token) > MAX_ATTRIBUTES:
                    return HtmlLimit.ATTRIBUTES
                stack.references(token.end - token.start, html.count("&", token.start, token.end))
            stack.start(token.name)
        elif token.kind is TokenKind.END:
            stack.end(token.name)
        else:
            stack.text(token.end - token.start, html.count("&", token.start, token.end))
        if stack.limit is not None:
            return stack.limit
    return None


class _Scope:
    """The open elements within one element of _SCOPES.

    A parser forgets the formatting elements that were opened within a cell, or within a scope other than a table, when
    that ends (13.2.4.3, markers). `marked` is True in such a place; `formatting` counts them.
    """

    __slots__ = ("cell", "elements", "formatting", "marked", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.elements: list[str] = []
        self.formatting = 0
        self.cell = ""
        self.marked = name not in {"", "table"}


class _OpenElements:
    """The elements that are open at a place in a document, at least; `limit` is set once they are too many."""

    def __init__(self) -> None:
        self.limit: HtmlLimit | None = None
        self._scopes = [_Scope("")]
        self._depth = self._formatting = self._reopened = self._steps = 0
        self._length = self._references = 0

    def start(self, name: str) -> None:
        """Open an element."""
        scope = self._scopes[-1]
        if name in _VOID:
            self.reopen()
            if name in _SHOWN:
                self._length = 0
        elif name in _CELLS or name in _TABLE_PARTS:
            self._start_in_table(scope, name)
        elif name in _SCOPES:
            self._scopes.append(_Scope(name))
            self._deeper()
        elif name not in _UNTRACKED:
            self._length = 0  # a new text begins after it
            self._open(scope, "h" if name in _HEADINGS else name)

    def end(self, name: str) -> None:
        """Close an element if every parser would."""
        scope = self._scopes[-1]
        if name in _CELLS or name in _TABLE_PARTS:
            self._end_in_table(scope, name)
        elif name in _SCOPES:
            if scope.name == name:
                self._leave_scope()
        elif name != "form":  # a parser closes forms by a rule of their own
            self._close(scope, "h" if name in _HEADINGS else name)

    def text(self, length: int, ampersands: int) -> None:
        """Add text; it joins the text before it unless an element is between."""
        self.reopen()
        self._length += length
        self.references(self._length, ampersands)

    def references(self, length: int, ampersands: int) -> None:
        """Count character references in a text or a tag of this length."""
        self._references += length * ampersands
        if self._references > _MAX_REFERENCES:
            self.limit = HtmlLimit.FORMATTING

    def reopen(self) -> None:
        """Count the formatting elements that a parser may open again before a text or an image."""
        self._reopened += self._formatting
        if self._reopened > _MAX_REOPENED:
            self.limit = HtmlLimit.FORMATTING

    def _open(self, scope: _Scope, name: str) -> None:
        if name in _ITEMS:
            self._close_item(scope, name)
        elif name in {"p", "a", "nobr"}:  # closes an open one
            self._close(scope, name)
        if name not in _SPECIAL:
            self.reopen()
        if name in _FORMATTING:
            self._formatting += 1
            scope.formatting += scope.marked
        scope.elements.append(name)
        self._deeper()

    def _close(self, scope: _Scope, name: str) -> None:
        """Remove the last element of this name unless one above it keeps it open."""
        elements = scope.elements
        if elements and elements[-1] == name:
            del elements[-1]
        else:
            at = self._found(elements, name)
            if at < 0:
                return
            above = elements[at + 1 :]
            if name not in _SPECIAL and not _SPECIAL.isdisjoint(above):
                return
            if name == "li" and not _LISTS.isdisjoint(above):
                return
            del elements[at]
        self._depth -= 1
        if name in _FORMATTING:
            self._formatting -= 1
            scope.formatting -= scope.marked

    def _close_item(self, scope: _Scope, name: str) -> None:
        """Remove the open list item that the start tag of another one closes."""
        for place in range(len(scope.elements) - 1, -1, -1):
            self._count_step()
            found = scope.elements[place]
            if found in _ITEMS[name]:
                del scope.elements[place]
                self._depth -= 1
                return
            if (found in _SPECIAL and found not in _PASSED) or self.limit is not None:
                return

    def _start_in_table(self, scope: _Scope, name: str) -> None:
        """Close what is open in the table; a parser ignores these tags outside tables."""
        if scope.name == "table":
            self._empty(scope)
            scope.cell = name if name in _CELLS else ""
            scope.marked = bool(scope.cell)

    def _end_in_table(self, scope: _Scope, name: str) -> None:
        """Close the cell if every parser would."""
        if scope.name != "table" or not scope.cell:
            return
        if name == scope.cell or (name == "tr" and scope.cell != "caption"):
            self._empty(scope)
        elif name in _CELLS or name == "tr":
            return
        scope.cell, scope.marked, scope.formatting = "", False, 0

    def _empty(self, scope: _Scope) -> None:
        self._depth -= len(scope.elements)
        self._formatting -= scope.formatting
        scope.elements.clear()
        scope.formatting = 0

    def _leave_scope(self) -> None:
        self._empty(self._scopes.pop())
        self._depth -= 1

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            self.limit = HtmlLimit.NESTING

    def _found(self, elements: list[str], name: str) -> int:
        """Return the place of the last element of this name, or -1."""
        for place in range(len(elements) - 1, -1, -1):
            self._count_step()
            if elements[place] == name:
                return place
        return -1

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            self.limit = HtmlLimit.FORMATTING
