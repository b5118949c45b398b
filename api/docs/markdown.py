"""Render Markdown: headings with anchors, tables, highlighted code, and tabs that work without script.

The texts are the project's own; markup in them is shown as text all the same.
"""

import re
from collections.abc import Callable
from html import escape
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from api.docs.highlight import highlighted

LANGUAGES: Final = {"sh": "Shell", "python": "Python", "js": "JavaScript", "json": "JSON", "http": "HTTP"}
_NO_ANCHOR: Final = re.compile(r"[^\w\- ]")
_NAME: Final = re.compile(r"\bname=(\S+)")
_NOTE: Final = re.compile(r"^(Note|Warning)\.$")

Resolve = Callable[[str], str | None]  # the address of a link's target, None where the site has no such page


class Heading(Struct, frozen=True):
    """A heading of a page: its level (2 to 4), anchor and plain text."""

    level: int
    anchor: str
    text: str


class RenderedText(Struct, frozen=True):
    """The HTML of a text, and its headings in order."""

    html: str
    headings: tuple[Heading, ...]


class CodeSample(Struct, frozen=True):
    """One code block: the language for highlighting, the label of its tab, and the code."""

    language: str
    label: str
    code: str


def anchor_of(text: str) -> str:
    """Return a heading's anchor, as GitHub makes it."""
    return _NO_ANCHOR.sub("", text.lower()).strip().replace(" ", "-")


def render(text: str, resolve: Resolve) -> RenderedText:
    """Return a Markdown text as HTML."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    headings = _with_anchors(tokens)
    _with_links(tokens, resolve)
    _with_notes(tokens)
    html = parser.renderer.render(_with_code(tokens), parser.options, {})
    # A region that scrolls must be reachable with the keyboard (WCAG 2.1.1); an empty cell is no heading.
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    html = html.replace("<th></th>", "<td></td>")
    return RenderedText(html, headings)


def _with_anchors(tokens: list[Token]) -> tuple[Heading, ...]:
    found: list[Heading] = []
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            text = _plain(tokens[at + 1])
            anchor = anchor_of(text)
            same = sum(1 for heading in found if heading.anchor.rsplit("-", 1)[0] == anchor or heading.anchor == anchor)
            anchor = f"{anchor}-{same}" if same else anchor
            token.attrSet("id", anchor)
            found.append(Heading(int(token.tag[1]), anchor, text))
    return tuple(found)


def _plain(token: Token) -> str:
    return "".join(child.content for child in token.children or () if child.type in {"text", "code_inline"})


def _with_links(tokens: list[Token], resolve: Resolve) -> None:
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                target = resolve(str(child.attrGet("href") or ""))
                if target is None:
                    child.tag = "span"
                    child.attrs = {}
                    _close_of(token.children or [], child).tag = "span"
                else:
                    child.attrSet("href", target)
            elif child.type == "image":
                child.attrSet("src", resolve(str(child.attrGet("src") or "")) or "")
                child.attrSet("loading", "lazy")


def _close_of(children: list[Token], opening: Token) -> Token:
    at = children.index(opening)
    return next(one for one in children[at:] if one.type == "link_close" and one.level == opening.level)


def _with_notes(tokens: list[Token]) -> None:
    """Give a class to the blockquotes that begin with a bold `Note.` or `Warning.`"""
    for at, token in enumerate(tokens):
        if token.type == "blockquote_open" and at + 2 < len(tokens):
            first = [child.content for child in tokens[at + 2].children or () if child.content][:1]
            if first and _NOTE.match(first[0]):
                token.attrSet("class", first[0].rstrip(".").lower())


def _with_code(tokens: list[Token]) -> list[Token]:
    """Replace the code blocks by highlighted ones; consecutive blocks with the word `tab` become one group of tabs."""
    found: list[Token] = []
    group: list[CodeSample] = []
    for at, token in enumerate(tokens):
        if token.type != "fence":
            found.append(token)
            continue
        words = token.info.split()
        language = words[0] if words else "text"
        named = _NAME.search(token.info)
        label = named[1].replace("_", " ") if named else LANGUAGES.get(language, language)
        group.append(CodeSample(language, label, token.content))
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        joins = (
            "tab" in words and following is not None and following.type == "fence" and "tab" in following.info.split()
        )
        if not joins:
            block = Token("html_block", "", 0)
            block.content = code_blocks(group, f"{at}")
            found.append(block)
            group = []
    return found


def code_blocks(samples: list[CodeSample], place: str) -> str:
    """Return one code block, or a group of tabs whose radio buttons choose the block; `place` is unique on the page."""
    if len(samples) == 1:
        return _code(samples[0])
    parts = []
    for number, one in enumerate(samples):
        box = f"tab-{place}-{number}"
        checked = " checked" if number == 0 else ""
        parts.append(
            f'<input type="radio" name="tabs-{place}" id="{box}" data-tab="{escape(one.label)}"{checked}>'
            f'<label for="{box}">{escape(one.label)}</label>'
        )
    parts += [f'<div class="tab">{_code(one)}</div>' for one in samples]
    return f'<div class="tabs" role="group" aria-label="Language">{"".join(parts)}</div>\n'


def _code(sample: CodeSample) -> str:
    # A scrolling region must be reachable with the keyboard (WCAG 2.1.1).
    return (
        f'<pre tabindex="0"><code class="{escape(sample.language)}">{highlighted(sample.code, sample.language)}'
        "</code></pre>\n"
    )


def as_plain_markdown(text: str) -> str:
    """Return a guide's text as it is copied: fences name the language alone."""
    return re.sub(r"^(```\w+)[^\n]*$", r"\1", text, flags=re.MULTILINE)
