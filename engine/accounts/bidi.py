"""Put a line of text into visual order for a PDF, which draws from left to right: Arabic and Hebrew names. Pure.

A reduced form of the Unicode Bidirectional Algorithm (UAX #9): one line, no explicit embeddings, levels 0 to 2, which
is what names, addresses and numbers need. python-bidi and FriBidi are under the LGPL.
"""

import os
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

_MIRRORED: Final = str.maketrans("()[]{}<>«»‹›", ")(][}{><»«›‹")
_RIGHT: Final = frozenset({"R", "AL"})
_NUMBERS: Final = frozenset({"EN", "AN"})
_MARKS: Final = frozenset({"NSM", "BN"})
# Within or beside a number these belong to it: a sign, a decimal separator, a currency sign (UAX #9, W4 and W5).
_NUMBER_PARTS: Final = frozenset({"ES", "CS", "ET"})


def visual_order(text: str) -> str:
    """Return a line in the order in which its characters are drawn; Arabic letters in their joined forms."""
    classes = [unicodedata.bidirectional(letter) for letter in text]
    if not _RIGHT.intersection(classes):
        return text
    text = _joined(text)
    levels = _levels([unicodedata.bidirectional(letter) for letter in text])
    return _reordered(text, levels)


def _joined(text: str) -> str:
    """Return Arabic letters as presentation forms, which the font has glyphs for."""
    shaped: str = _reshaper().reshape(text)
    return shaped


@cache
def _reshaper() -> Any:
    """Return a reshaper for Arabic with its built-in configuration, whatever file the environment names."""
    import arabic_reshaper  # noqa: PLC0415 - only right-to-left names need it

    return arabic_reshaper.ArabicReshaper(configuration_file=os.devnull)


def _levels(classes: Sequence[str]) -> list[int]:
    strong = [kind for kind in classes if kind == "L" or kind in _RIGHT]
    base = 1 if strong and strong[0] in _RIGHT else 0
    directions = _neutral_resolved(_strong_directions(classes, base), base)
    levels = []
    for kind, direction in zip(classes, directions, strict=True):
        if direction == "N":  # a number after right-to-left text
            levels.append(2)
        elif direction == "R":
            levels.append(1)
        else:
            levels.append(2 * base if kind == "L" or base else 0)
    return levels


def _strong_directions(classes: Sequence[str], base: int) -> list[str]:
    """Return L, R or N (a number in right-to-left text) for each character; `?` for neutral ones."""
    found: list[str] = []
    last = "R" if base else "L"
    for place, kind in enumerate(classes):
        if kind == "L":
            last = "L"
            found.append("L")
        elif kind in _RIGHT:
            last = "R"
            found.append("R")
        elif kind in _NUMBERS:
            found.append("N" if last == "R" else "L")
        elif kind in _MARKS and found:
            found.append(found[-1])
        elif kind in _NUMBER_PARTS and found and found[-1] == "N" and _number_follows(classes, place):
            found.append("N")
        else:
            found.append("?")
    return found


def _number_follows(classes: Sequence[str], place: int) -> bool:
    return place + 1 < len(classes) and classes[place + 1] in _NUMBERS


def _neutral_resolved(directions: list[str], base: int) -> list[str]:
    """Give neutral characters the direction of both neighbours if they agree, else that of the line."""
    line = "R" if base else "L"
    resolved = list(directions)
    for place, direction in enumerate(directions):
        if direction != "?":
            continue
        before = next((one for one in reversed(resolved[:place]) if one != "?"), line)
        after = next((one for one in directions[place + 1 :] if one != "?"), line)
        sides = {"R" if one == "N" else one for one in (before, after)}
        resolved[place] = sides.pop() if len(sides) == 1 else line
    return resolved


def _reordered(text: str, levels: Sequence[int]) -> str:
    letters = [letter.translate(_MIRRORED) if level % 2 else letter for letter, level in zip(text, levels, strict=True)]
    order = list(range(len(letters)))
    for level in range(max(levels), 0, -1):
        start = 0
        while start < len(order):
            if levels[order[start]] < level:
                start += 1
                continue
            end = start
            while end < len(order) and levels[order[end]] >= level:
                end += 1
            order[start:end] = reversed(order[start:end])
            start = end
    return "".join(letters[place] for place in order)
