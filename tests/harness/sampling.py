"""Reduce the cases of long tables and the number of generated inputs, unless the run is `ops test --all`.

The seed of the run chooses the cases; the others have the mark `exhaustive`. The report's header shows the seed, and
`--seed` repeats it.
"""

import random
from collections.abc import Iterable
from typing import Any

import hypothesis
import pytest

# Set by tests/conftest.py before modules are imported.
seed = 0
everything = False


def examples(many: int, *, share: int = 10, **options: Any) -> hypothesis.settings:
    """Return settings with so many examples for `ops test --all`, and one in `share` of them otherwise."""
    return hypothesis.settings(max_examples=many if everything else many // share, **options)


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
