"""Build the index that `files/search.js` searches: pages, their sections, and the sections of each word.

The script stems, expands and scores; the index holds words as they are written, so that only one stemmer exists.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec import Struct

_WORD: Final = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# Two sets of digits make numbers readable without a separator; one character holds most of the differences.
_LAST: Final = "".join(map(chr, range(48, 92)))
_MORE: Final = "".join(map(chr, range(93, 127)))
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(r"^- `([A-Za-z]+)` \(|`(WAYBILL_[A-Z_]+)`", re.MULTILINE)
MAX_WORD: Final = 24  # characters; longer ones are ids and signatures
MAX_WORDS: Final = 64  # different ones of a section: its first
MAX_WORDS_OF_RUNBOOKS: Final = 40  # people look for a guide first
MAX_SHARE: Final = 0.15  # of the sections: a word in more of them counts in titles only
# Synonyms and words to ignore, as readers type them.
_TABLE: Final[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "search_words.toml").read_text("utf-8"))


class IndexedSection(Struct, frozen=True):
    """A part of a page that a search can find. `names` are identifiers that find it alone: `POST /v1/emails`."""

    anchor: str
    title: str
    text: str
    names: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()  # of a request or response


class IndexedPage(Struct, frozen=True):
    """A page with its sections; the first is the page's beginning. `group` is its section of the navigation."""

    address: str
    title: str
    description: str
    group: str
    sections: tuple[IndexedSection, ...]


def index(pages: Iterable[IndexedPage]) -> bytes:
    """Return the index as JSON: `pages`, `sections`, `words` with their places, and the table of words."""
    known = list(pages)
    sections = [(number, one) for number, page in enumerate(known) for one in page.sections]
    places: dict[str, list[int]] = defaultdict(list)
    fields: dict[str, list[int]] = defaultdict(list)
    for place, (page, section) in enumerate(sections):
        most = MAX_WORDS_OF_RUNBOOKS if known[page].group == "Operating" else MAX_WORDS
        for word in _chosen(section, most):
            places[word].append(place)
        for field in {one.lower() for one in section.fields}:
            fields[field].append(place)
    common = {word for word, found in places.items() if len(found) > MAX_SHARE * len(sections)}
    rare = {word: found for word, found in sorted(places.items()) if word not in common}
    return orjson.dumps(
        {
            "pages": [[page.address, page.title, page.description, page.group] for page in known],
            "sections": [[number, one.title, *(one.names or [one.anchor])] for number, one in sections],
            "words": " ".join(rare),
            "places": " ".join(_packed(found) for found in rare.values()),
            "common": " ".join(sorted(common)),
            "fields": {field: _packed(found) for field, found in sorted(fields.items())},
            "topics": _TABLE["topics"],
            "same": _TABLE["same"],
            "ignored": _TABLE["ignored"],
        }
    )


def prose(markdown: str) -> str:
    """Return a text without its code blocks: their words are those of shells and protocols."""
    return _FENCE.sub(" ", markdown)


def fields_of(markdown: str) -> tuple[str, ...]:
    """Return the names of the fields that a section of the reference lists, and of settings."""
    return tuple(dict.fromkeys(field or setting for field, setting in _FIELD.findall(markdown)))


def _chosen(section: IndexedSection, most: int) -> list[str]:
    return list(dict.fromkeys((*_words(section.title), *_words(section.text))))[:most]


def _words(text: str) -> Iterator[str]:
    """Return each word in lower case; of `rate_limited` and `dryRun` the parts too."""
    for word in _WORD.findall(text):
        if len(word) > MAX_WORD or (word.isdigit() and len(word) < 3):  # not codes such as 429
            continue
        parts = [part for part in _PART.findall(word) if len(part) > 1]
        yield from dict.fromkeys((word.lower(), *map(str.lower, parts))) if len(word) > 1 else ()


def _packed(places: list[int]) -> str:
    """Return ascending numbers as their differences: a last digit of `_LAST` each, before it digits of `_MORE`."""
    return "".join(_digits(place - before) for before, place in zip([0, *places], places, strict=False))


def _digits(number: int) -> str:
    rest, last = divmod(number, len(_LAST))
    text = _LAST[last]
    while rest:
        rest, digit = divmod(rest, len(_MORE))
        text = _MORE[digit] + text
    return text
