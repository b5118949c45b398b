"""What the bench and its load generator tell each other: orders on standard input, answers on standard output."""

import array
import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Struct

from engine.base.settings import PREFIX
from ops import launch
from ops.fleet import ROOT

STRANGER_S: Final = 30.0  # how long the process may take to start, and to answer once its time is over
_MAX_LINE: Final = 64 * 1024


class Target(Struct, frozen=True, kw_only=True):
    """Whom to call, and as whom."""

    host: str
    port: int
    key: str
    sender: str
    domains: int  # recipients lie under bench-0.test … bench-<domains - 1>.test
    connections: int
    folder: str  # for the times of each request
    batch: int = 1  # messages a request; more than one go to POST /v1/emails/batch


class Order(Struct, frozen=True, kw_only=True):
    """Send `count` messages, numbered from `first`: as fast as answers come, or at `rate` a second."""

    first: int
    count: int
    rate: float | None = None
    timeout_s: float


class Load(Struct, frozen=True, kw_only=True):
    """What became of an order. `began` and `ended` are on the machine's monotonic clock, in seconds."""

    began: float
    ended: float
    accepted: int
    refused: dict[str, int]  # by HTTP status, `lost` for a connection that broke, `unanswered` at the time-out
    example: str | None  # the first answer that was no 202
    times: str  # file: `count` latencies in s (nan: no 202), then `count` wall-clock times of the 202


class GeneratorFailed(RuntimeError):  # noqa: N818 - named for what happened
    """The load generator ended or fell silent."""


class Generator:
    """The generator's process; an async context manager."""

    def __init__(self, target: Target, log: Path) -> None:
        self._target = target
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        return self._running.pid

    async def __aenter__(self) -> Self:
        """Returns when it is ready to take orders."""
        environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *launch.command([sys.executable, "-m", "loadtests.bench.generator"]),
                env=environ, cwd=ROOT, start_new_session=True, limit=_MAX_LINE,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        await self._say(self._target)
        await self._hear(STRANGER_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            self._running.kill()
        await self._running.wait()

    async def send(self, order: Order) -> Load:
        """Have an order carried out; raises GeneratorFailed."""
        await self._say(order)
        return msgspec.json.decode(await self._hear(order.timeout_s + STRANGER_S), type=Load)

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def _say(self, what: Target | Order) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write(msgspec.json.encode(what) + b"\n")
        with suppress(ConnectionError):  # `_hear` tells
            await self._running.stdin.drain()

    async def _hear(self, timeout_s: float) -> bytes:
        assert self._running.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._running.stdout.readline()
        except TimeoutError:
            raise GeneratorFailed(f"The load generator fell silent for {timeout_s:.0f} s (log: {self._log}).") from None
        if not line:
            raise GeneratorFailed(f"The load generator ended early:\n{self._log.read_text('utf-8', 'replace')[-2000:]}")
        return line


def times_of(load: Load) -> tuple["array.array[float]", "array.array[float]"]:
    """Latencies in seconds and wall-clock times of the answers, by place in the order."""
    both = array.array("d")
    both.frombytes(Path(load.times).read_bytes())
    half = len(both) // 2
    return both[:half], both[half:]
