"""Measure what the same work costs when it runs back to back, and when it runs once every few milliseconds.

`python3 -m loadtests.cold_work` composes messages and reads JSON, as an api worker does. Between two runs the process
sleeps, or spins without touching memory, or reads 8 MB. It needs a machine on which nothing else runs. Virtual
machines have no counters of cache misses: work that costs more after spinning did not pay for being woken.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from engine.mail.address import Mailbox
from engine.mail.compose import Draft, compose

APART_MS: Final = (1, 4, 20)
RUNS: Final = 200
_DRAFT: Final = Draft(
    message_id="m@sender.test", date=datetime(2026, 1, 1, tzinfo=UTC), sender=Mailbox("Shop", "shop@sender.test"),
    to=(Mailbox("", "ann@people.test"),), subject="Your order", text="Thank you.\n" * 100, html="<p>Thanks.</p>" * 60,
)  # fmt: skip
_JSON: Final = json.dumps([{"number": number, "text": str(number)} for number in range(40)])
_OTHER: Final = bytes(range(256)) * 4096 * 8


def work() -> None:
    """Do what takes some 0.1 ms when it runs back to back."""
    for _ in range(3):
        compose(_DRAFT)
        json.loads(_JSON)


def spin(seconds: float) -> None:
    """Keep the processor busy without touching memory."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def read_memory(_seconds: float) -> None:
    """Read more than a core's own caches hold."""
    _OTHER.count(b"\0\1\2\3\5")


def cost_us(between: Callable[[float], None], apart_s: float) -> float:
    """Return the CPU of the work in µs, the mean of all runs."""
    used = 0
    for _ in range(RUNS):
        between(apart_s)
        began = time.process_time_ns()
        work()
        used += time.process_time_ns() - began
    return used / RUNS / 1000


def main() -> None:
    """Print the table."""
    cost_us(time.sleep, 0)
    print(f"back to back      {cost_us(lambda _: None, 0):7.0f} µs")
    for between in (time.sleep, spin):
        for apart_ms in APART_MS:
            print(f"{between.__name__:5} {apart_ms:5} ms    {cost_us(between, apart_ms / 1000):7.0f} µs")
    print(f"read 8 MB         {cost_us(read_memory, 0):7.0f} µs")


if __name__ == "__main__":
    main()
