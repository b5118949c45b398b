"""Run the receiver process of webhook posts and read what arrived there."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from engine.base import ids
from engine.base.settings import PREFIX
from loadtests.bench.run_control import BenchFailed
from ops.host import launch
from ops.host.process_specs import ROOT

PATIENCE_S = 120.0


class WebhookArrivals:
    """The posts that a receiver process got; `quick_url` answers at once, `never_url` never."""

    def __init__(self, pid: int, ports: dict[str, int]) -> None:
        self.pid = pid
        self._base = f"http://127.0.0.1:{ports['quick']}"
        self.quick_url = f"{self._base}/hook"
        self.never_url = f"http://127.0.0.1:{ports['never']}/hook"

    async def count(self) -> int:
        """Return the number of posts so far."""
        return int(await self._fetch("count"))

    async def lines(self) -> list[tuple[str, int]]:
        """Return the delivery id and the time (Unix ms) of each post, in the order of arrival."""
        text = await self._fetch("arrivals")
        return [(line.split()[0], int(line.split()[1])) for line in text.splitlines()]

    async def delays_s(self, first: int = 0) -> list[float]:
        """Return the seconds from each event's creation to its post, without the `first` posts."""
        return [
            (at - ids.milliseconds_of(ids.parse_id(ids.Kind.EVENT, name))) / 1000 for name, at in await self.lines()
        ][first:]

    async def wait_for(self, count: int) -> float:
        """Wait until `count` posts have arrived; return the monotonic time. Raises BenchFailed after PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := await self.count()) < count:
            if time.monotonic() > deadline:
                raise BenchFailed(f"Only {found} of {count} posts arrived.")
            await asyncio.sleep(0.02)
        return time.monotonic()

    async def _fetch(self, path: str) -> str:
        return await asyncio.to_thread(_fetched, f"{self._base}/{path}")


@contextmanager
def receiving() -> Iterator[WebhookArrivals]:
    """Run the receiver process, which ends with this one."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    process = subprocess.Popen(
        launch.command([sys.executable, "-m", "loadtests.bench.webhook_receiver"]),
        env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield WebhookArrivals(process.pid, json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - our own receiver
        text: str = answer.read().decode()
        return text
