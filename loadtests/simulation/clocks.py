"""The functions of the module `time`, which follow a simulated clock from `follow` on.

`wrap` comes before all imports of the service, which keeps some of these functions as defaults of its own.
"""

import time
from collections.abc import Callable
from typing import Final


class _Followed:
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    unix: Callable[[], float] = staticmethod(time.time)


real_monotonic: Final = time.monotonic


def follow(monotonic: Callable[[], float], unix: Callable[[], float]) -> None:
    """Take monotonic and Unix time from these functions."""
    _Followed.monotonic, _Followed.unix = staticmethod(monotonic), staticmethod(unix)


def _monotonic() -> float:
    return _Followed.monotonic()


def _unix() -> float:
    return _Followed.unix()


def _unix_ns() -> int:
    return round(_Followed.unix() * 1e6) * 1000


def wrap() -> None:
    """Replace the functions of `time` in this process."""
    time.monotonic = time.perf_counter = _monotonic
    time.time = _unix
    time.time_ns = _unix_ns
