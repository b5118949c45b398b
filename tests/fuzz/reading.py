"""Give one input to a reader, and say how to repeat what it did wrong."""

import time

from tests.fuzz.targets import Target
from tests.worst_inputs.costs import is_cheap

_TRIES = 3  # of an input above the bounds: other work on the machine only adds


class Misread(AssertionError):  # noqa: N818 - named for what happened
    """A reader raised what it must not raise, or took too long; the text holds the input."""


def read(target: Target, content: bytes) -> None:
    """Raise Misread unless the reader reads or refuses the input within the CPU that it may cost."""
    spent_ms = []
    for _ in range(_TRIES):
        began = time.process_time()
        try:
            target.read(content)
        except target.refusals:
            pass
        except Exception as error:
            raise Misread(f"{target.name}: {error!r} for {content!r}") from error
        spent_ms.append((time.process_time() - began) * 1_000)
        if is_cheap(len(content), spent_ms[-1]):
            return
    raise Misread(f"{target.name}: {min(spent_ms):,.0f} ms of CPU for {content!r}")
