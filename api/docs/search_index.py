"""Build the search index: for each page and section its address, title, place and words."""

import re
from collections.abc import Iterable
from typing import Final

import orjson
from msgspec import Struct

_WORD: Final = re.compile(r"[a-z0-9_.-]{3,}")
_COMMON: Final = frozenset(
    [
        "the", "and", "for", "that", "this", "with", "from", "are", "has", "have", "its", "not", "but", "can", "you",
        "all", "one", "may", "any", "each", "which", "their", "they", "was", "were", "then", "than", "only", "also",
        "your", "when", "who", "will", "does", "into",
    ]
)  # fmt: skip
MAX_WORDS: Final = 25  # of a section: its first ones, so that the index stays below 40 KB


class IndexedSection(Struct, frozen=True):
    """A part of a page that a search can find."""

    address: str
    title: str
    place: str  # the page's title, or the section of the navigation
    text: str


def index(sections: Iterable[IndexedSection]) -> bytes:
    """Return the index as JSON: a list of `[address, title, place, words]`."""
    return orjson.dumps([[one.address, one.title, one.place, " ".join(_words(one.text))] for one in sections])


def _words(text: str) -> list[str]:
    found = (word.strip(".-") for word in _WORD.findall(text.lower()))
    return list(dict.fromkeys(word for word in found if word not in _COMMON and len(word) > 2))[:MAX_WORDS]
