"""A part of a long table of cases: chosen by the seed of the run by default, all with `ops test --all`.

The other cases are collected with the mark `exhaustive`. The report's header shows the seed, and `--seed` repeats it.
"""

import random
from collections.abc import Iterable
from typing import Any

import pytest

seed = 0  # set by tests/conftest.py before modules are imported


def sampled(cases: Iterable[object], share: int) -> list[Any]:
    """Return all cases, of which one in `share` at random, and at least one, is without the mark `exhaustive`."""
    found = list(cases)
    chosen = set(random.Random(seed).sample(range(len(found)), -(-len(found) // share)))
    return [one if place in chosen else _left_out(one) for place, one in enumerate(found)]


def _left_out(case: Any) -> Any:
    values, marks, name = (
        (case.values, case.marks, case.id) if type(case) is type(pytest.param()) else ((case,), (), None)
    )
    return pytest.param(*values, marks=[*marks, pytest.mark.exhaustive], id=name)
