"""The guides of the documentation site, read for tests: front matter, fences, tables, links."""

import re
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from api.docs.guides import Guide
from api.docs.guides import guides as read_guides
from api.docs.markdown import anchor_of
from ops.host.process_specs import ROOT

SCRIPTS = ROOT / "api" / "docs" / "scripts"
_FENCE = re.compile(r"^```(\S+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")


class GuideSample(Struct, frozen=True):
    """A code block of a guide: its place among them (from 1), its language, the words after it, its text."""

    guide: str
    place: int
    language: str
    words: frozenset[str]
    text: str

    def __str__(self) -> str:
        return f"sample {self.place} of {self.guide}.md"

    @property
    def runs(self) -> bool:
        return "run" in self.words


class GuideText(Struct, frozen=True):
    """A guide as its author wrote it."""

    page: Guide

    @property
    def slug(self) -> str:
        return self.page.slug

    @property
    def text(self) -> str:
        return self.page.text

    @property
    def samples(self) -> list[GuideSample]:
        return [
            GuideSample(self.slug, place, found[1], frozenset(found[2].split()), found[3])
            for place, found in enumerate(_FENCE.finditer(self.text), start=1)
        ]

    @property
    def prose(self) -> str:
        """The text without its fences."""
        return _FENCE.sub("", self.text)

    @property
    def anchors(self) -> set[str]:
        """The ids of the headings, as GitHub makes them."""
        return {anchor_of(title) for _, title in self.headings}

    @property
    def headings(self) -> list[tuple[int, str]]:
        return [(len(found[1]), found[2]) for found in _HEADING.finditer(self.prose)]

    @property
    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    def rows(self, first: str) -> Iterator[list[str]]:
        """The rows of each table whose head begins with `first`, in lower case, as lists of cells."""
        inside = False
        for line in self.prose.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
            if not cells:
                inside = False
            elif inside:
                if not set(cells[0]) <= set("-: "):
                    yield cells
            else:
                inside = cells[0].lower() == first


def names_in(cell: str) -> list[str]:
    """The words in backticks of a table's cell."""
    return _CODE.findall(cell)


@cache
def guides() -> dict[str, GuideText]:
    """All guides by slug, in the order of the site."""
    return {page.slug: GuideText(page) for page in read_guides()}
