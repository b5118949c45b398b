"""Build worst inputs, and check the CPU that one costs its reader.

A reader without a bound on its work per octet lets a client take seconds of CPU with a few megabytes. Good readers stay
below 1 µs per octet, or below 100 ms for an input that a bound ends early; the bounds here allow five times as much.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from engine.base.errors import Refusal
from engine.people.identity.id_tokens import BadToken

SIZE_BYTES = 2 * 1024 * 1024
MAX_US_PER_OCTET = 5.0
MAX_MS = 500.0
_TRIES = 3  # of a case above the bounds: other work on the machine only adds

Content = Callable[[], bytes]


def filled(piece: bytes, before: bytes = b"", after: bytes = b"", size: int = SIZE_BYTES) -> Content:
    """Return a maker of `before`, so many pieces that they have `size` octets, and `after`."""
    return lambda: before + piece * (size // len(piece)) + after


def worst(reader: str, read: Callable[[bytes], Any], inputs: Mapping[str, Content]) -> list[Any]:
    """Return the test cases of one reader, named after reader and input."""
    return [pytest.param(read, content, id=f"{reader}: {name}") for name, content in inputs.items()]


def of_text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Return a reader of octets from a reader of text."""
    return lambda octets: read(octets.decode())


def is_cheap(octets: int, cpu_ms: float) -> bool:
    """Return True if the CPU is within the bounds for so many octets."""
    return cpu_ms <= max(MAX_MS, octets * MAX_US_PER_OCTET / 1000)


def check(read: Callable[[bytes], Any], content: bytes) -> None:
    """Read or refuse an input; raises AssertionError if that costs too much CPU."""
    found = []
    for _ in range(_TRIES):
        began = time.process_time()
        with suppress(ValueError, Refusal, BadToken):
            read(content)
        found.append((time.process_time() - began) * 1000)
        if is_cheap(len(content), found[-1]):
            return
    raise AssertionError(f"{len(content):,} octets cost {min(found):,.0f} ms of CPU")
