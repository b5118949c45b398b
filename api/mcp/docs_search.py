"""Search the documentation for an agent, with the index that the documentation's own search uses.

The scoring is simpler than that of `api/docs/files/search.js`, which knows how people misspell.
"""

import asyncio
import math
import re
from collections import defaultdict
from typing import Any, Final

import msgspec

from api.mcp.calls import Api, CallRefused

INDEX: Final = "/docs/search.json"
ERRORS: Final = "/docs/errors.md"
MAX_PAGE: Final = 60_000  # characters
_WORD: Final = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
_TITLE, _PAGE, _TEXT = 4.0, 1.6, 1.0  # weights of a word by its place
_GROUPS: Final = {"API": 0.7, "Operating": 0.55}  # guides first
_MAX_OF_PAGE: Final = 2
_FIRST_DIGIT, _LAST_BASE, _FIRST_MORE, _MORE_BASE = 48, 44, 93, 34  # of packed numbers, see api/docs/search_index.py


class DocsSearch:
    """The index of the documentation, read at the first search; lives as long as its server."""

    def __init__(self) -> None:
        self._index: dict[str, Any] | None = None
        self._places: dict[str, list[int]] = {}
        self._reading = asyncio.Lock()

    async def search(self, api: Api, query: str, limit: int) -> list[dict[str, str]]:
        """Return the sections that fit best: page, title and description."""
        async with self._reading:
            if self._index is None:
                found = msgspec.json.decode(await api.file(INDEX), type=dict[str, Any])
                words = found["words"].split(" ")
                self._places = dict(zip(words, map(_numbers, found["places"].split(" ")), strict=True))
                self._index = found
        return self._best(self._index, [one.lower() for one in _WORD.findall(query)], limit)

    def _best(self, index: dict[str, Any], words: list[str], limit: int) -> list[dict[str, str]]:
        ignored = set(index["ignored"].split())
        sections = index["sections"]
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(one for one in words if one not in ignored):
            forms = _forms(word)
            weights: dict[int, float] = {}
            for form in forms:
                for place in self._places.get(form, ()):
                    weights[place] = _TEXT
            for place, (page, title, *_) in enumerate(sections):
                weight = _TITLE * _has(title, forms) or _PAGE * _has(" ".join(index["pages"][page][1:3]), forms)
                if weight:
                    weights[place] = max(weights.get(place, 0.0), weight)
            rarity = math.log(1 + len(sections) / max(len(weights), 1))
            for place, weight in weights.items():
                scores[place] += rarity * weight
        return _chosen(index, scores, limit)


async def page(api: Api, name: str) -> dict[str, Any]:
    """Return a page of the documentation as Markdown."""
    text = (await api.file(f"/docs/{name}.md")).decode()
    return {"page": name, "markdown": text[:MAX_PAGE], "cut": len(text) > MAX_PAGE}


async def error_text(api: Api, kind: str) -> dict[str, Any]:
    """Return the section of an error type. Raises CallRefused for an unknown one."""
    text = (await api.file(ERRORS)).decode()
    for section in re.split(r"^(?=#{2,3} )", text, flags=re.MULTILINE):
        if section.splitlines()[0].strip("# `") == kind:
            return {"type": kind, "markdown": section.strip()}
    raise CallRefused(404, {"type": "not_found", "message": f"Unknown error type {kind!r}. Read the page `errors`."})


def _chosen(index: dict[str, Any], scores: dict[int, float], limit: int) -> list[dict[str, str]]:
    def rank(place: int) -> float:
        return scores[place] * _GROUPS.get(index["pages"][index["sections"][place][0]][3], 1.0)

    shown: dict[int, int] = defaultdict(int)
    found: list[dict[str, str]] = []
    for place in sorted(scores, key=rank, reverse=True):
        number, title, *_ = index["sections"][place]
        shown[number] += 1
        if shown[number] <= _MAX_OF_PAGE:
            address, page_title, description, _ = index["pages"][number]
            name = address.partition("/docs/")[2] or "index"
            found.append({"page": name, "title": page_title, "section": title, "description": description})
        if len(found) == limit:
            break
    return found


def _forms(word: str) -> set[str]:
    """Return the spellings under which the index may hold a word: its plural, its singular."""
    return {word, f"{word}s", word.removesuffix("s"), word.removesuffix("ing"), word.removesuffix("ed")}


def _has(text: str, forms: set[str]) -> bool:
    return not forms.isdisjoint(one.lower() for one in _WORD.findall(text))


def _numbers(packed: str) -> list[int]:
    found, place, high = [], 0, 0
    for char in packed:
        code = ord(char)
        if code >= _FIRST_MORE:
            high = high * _MORE_BASE + code - _FIRST_MORE
        else:
            place += high * _LAST_BASE + code - _FIRST_DIGIT
            high = 0
            found.append(place)
    return found
