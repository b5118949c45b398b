"""Lay out a page of the site: navigation, text, the headings of the page, and the links to its neighbours."""

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from api.docs.markdown import Heading


class NavigationEntry(NamedTuple):
    """A page in the navigation."""

    address: str
    title: str


class NavigationGroup(NamedTuple):
    """A titled part of the navigation."""

    title: str
    entries: tuple[NavigationEntry, ...]


class PageParts(NamedTuple):
    """The parts of one page; `address` is where it is served, `twin` its Markdown copy."""

    address: str
    twin: str
    title: str
    description: str
    html: str
    headings: tuple[Heading, ...]
    script: str = ""  # a further module of this page


class SiteFrame(NamedTuple):
    """What all pages share: where the site, its files and the console are, and the navigation."""

    docs: str
    files: str
    console: str
    navigation: tuple[NavigationGroup, ...]

    def page(self, parts: PageParts) -> str:
        """Return the whole HTML document."""
        scripts = "".join(
            f'<script type="module" src="{self.files}/{name}"></script>' for name in ("docs.js", parts.script) if name
        )
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f'<meta name="description" content="{escape(parts.description)}">\n'
            f"<title>{escape(parts.title)} · Waybill</title>\n"
            f'<link rel="icon" href="{self.files}/icon.svg" type="image/svg+xml">\n'
            f'<link rel="alternate" type="text/markdown" href="{parts.twin}">\n'
            f'<link rel="stylesheet" href="{self.files}/docs.css">\n{scripts}\n</head>\n<body>\n'
            f'<a class="skip" href="#text">Skip to the text</a>\n{self._header()}'
            f'<div class="columns">\n{self._navigation(parts.address)}'
            f'<main id="text" data-docs="{self.docs}"><h1>{escape(parts.title)}</h1>\n'
            f'<p class="lead">{escape(parts.description)}</p>\n{parts.html}\n{self._neighbours(parts.address)}'
            f'<p class="twin"><a href="{parts.twin}">This page as Markdown</a></p></main>\n'
            f"{_headings(parts.headings)}</div>\n</body>\n</html>\n"
        )

    def _header(self) -> str:
        return (
            f'<header class="bar"><a class="brand" href="{self.docs}">Waybill <span>Docs</span></a>'
            '<form class="search" role="search" hidden>'
            '<label class="hidden" for="search">Search the documentation</label>'
            f'<input id="search" type="search" placeholder="Search" autocomplete="off" aria-controls="found" '
            f'aria-expanded="false" role="combobox" aria-autocomplete="list"><kbd>/</kbd>'
            f'<ul id="found" role="listbox" aria-label="Results" hidden></ul></form>'
            f'<a href="{self.docs}/api">API</a> <a href="{self.console}">Console</a></header>\n'
        )

    def _navigation(self, current: str) -> str:
        groups = "".join(
            f"<p>{escape(group.title)}</p><ul>"
            + "".join(
                f'<li><a href="{one.address}"{_CURRENT if one.address == current else ""}>{escape(one.title)}</a></li>'
                for one in group.entries
            )
            + "</ul>"
            for group in self.navigation
        )
        return f'<details class="pages" open><summary>Pages</summary><nav aria-label="Pages">{groups}</nav></details>\n'

    def _neighbours(self, current: str) -> str:
        entries = [entry for group in self.navigation for entry in group.entries]
        at = next((place for place, entry in enumerate(entries) if entry.address == current), None)
        if at is None:
            return ""
        before = entries[at - 1] if at else None
        after = entries[at + 1] if at + 1 < len(entries) else None
        links = [
            f'<a rel="{rel}" href="{entry.address}"><span>{word}</span> {escape(entry.title)}</a>'
            for entry, rel, word in ((before, "prev", "Previous"), (after, "next", "Next"))
            if entry is not None
        ]
        return f'<nav class="neighbours" aria-label="Neighbouring pages">{"".join(links)}</nav>\n'


_CURRENT = ' aria-current="page"'


def _headings(headings: Iterable[Heading]) -> str:
    lines = "".join(
        f'<li class="level-{one.level}"><a href="#{one.anchor}">{escape(one.text)}</a></li>'
        for one in headings
        if one.level <= 3
    )
    return (
        f'<nav class="contents" aria-label="On this page"><p>On this page</p><ul>{lines}</ul></nav>\n' if lines else ""
    )
