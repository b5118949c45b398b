"""Sort times from acceptance to delivery into a few classes that the database can add up. Pure.

Each class is RATIO times as wide as the one before. Quantiles are interpolated within a class, so that the classes need
not be as fine as those of `engine.receiving.analytics.histogram`.
"""

import math
from typing import Final

CLASSES: Final = 64
FIRST_S: Final = 0.1  # the upper edge of the first class
RATIO: Final = 1.25
EDGES_S: Final = tuple(FIRST_S * RATIO**place for place in range(CLASSES))  # upper edges; the last one is 35 hours
_LOG: Final = math.log(RATIO)


def class_of(seconds: float) -> int:
    """Return the class of a time. Negative ones, from clocks of two hosts, are 0 s; days are in the last class."""
    if seconds <= FIRST_S:
        return 0
    return min(CLASSES - 1, math.ceil(math.log(seconds / FIRST_S) / _LOG))


def time_in(place: int, part: float) -> float:
    """Return the time in seconds that has `part` (0 to 1) of a class below it."""
    return FIRST_S * part if place == 0 else float(EDGES_S[place - 1] * RATIO**part)


def part_below(place: int, seconds: float) -> float:
    """Return the part of a class that lies below `seconds`, a time within the class."""
    return seconds / FIRST_S if place == 0 else math.log(seconds / EDGES_S[place - 1]) / _LOG
