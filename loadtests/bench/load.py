"""The protocol between a bench and its load processes: JSON lines, orders on stdin and results on stdout."""

import array
import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec
from msgspec import Struct

from engine.base.settings import PREFIX
from ops.host import launch
from ops.host.process_specs import ROOT

HTTP_GENERATOR: Final = "loadtests.bench.http_load"
SMTP_GENERATOR: Final = "loadtests.bench.smtp_load"
PROCESS_START_S: Final = 30.0  # for the process to start, and to answer after its time is over
_MAX_LINE: Final = 64 * 1024

Door = Literal["json", "raw", "smtp"]  # POST /v1/emails, POST /v1/emails/raw, SMTP submission


class LoadTarget(Struct, frozen=True, kw_only=True):
    """The API to call, the key and the messages to send."""

    host: str
    port: int
    key: str
    sender: str
    domains: int  # recipients lie under bench-0.test … bench-<domains - 1>.test
    connections: int
    folder: str  # for the times of each request
    batch: int = 1  # messages per request; more than one go to POST /v1/emails/batch
    raw: bool = False  # send MIME to POST /v1/emails/raw
    attached: int = 0  # octets of a random attachment; 0: none


class LoadOrder(Struct, frozen=True, kw_only=True):
    """Send `count` messages, numbered from `first`: as fast as answers come, or at `rate` a second."""

    first: int
    count: int
    rate: float | None = None
    timeout_s: float


class LoadResult(Struct, frozen=True, kw_only=True):
    """The result of an order. `began` and `ended` are on the machine's monotonic clock, in seconds."""

    began: float
    ended: float
    accepted: int
    refused: dict[str, int]  # by status, `lost` for a connection that broke, `unanswered` at the time-out
    example: str | None  # the first refusal
    times: str  # file: `count` latencies in s (nan: not accepted), then `count` wall-clock times of the acceptance


class GeneratorFailed(RuntimeError):  # noqa: N818 - named for what happened
    """A process that sends load ended or gave no answer."""


class LoadProcess:
    """A process that sends load: it reads a LoadTarget, then LoadOrders, and answers each with a LoadResult.

    An asynchronous context manager; the process ends with it.
    """

    def __init__(self, module: str, target: Struct, log: Path) -> None:
        self._module = module
        self._target = target
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        return self._running.pid

    async def __aenter__(self) -> Self:
        """Start the process and return when it is ready to take orders."""
        environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *launch.command([sys.executable, "-m", self._module]),
                env=environ, cwd=ROOT, start_new_session=True, limit=_MAX_LINE,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        await self._ask(self._target, PROCESS_START_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            self._running.kill()
        await self._running.wait()

    async def send(self, order: LoadOrder) -> LoadResult:
        """Let the process carry out an order; raises GeneratorFailed."""
        return msgspec.json.decode(await self._ask(order, order.timeout_s + PROCESS_START_S), type=LoadResult)

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def _ask(self, what: Struct, timeout_s: float) -> bytes:
        """Write one line and return the line that answers it."""
        process = self._running
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            async with asyncio.timeout(timeout_s):
                with suppress(ConnectionError):  # the empty line below tells
                    process.stdin.write(msgspec.json.encode(what) + b"\n")
                    await process.stdin.drain()
                    line = await process.stdout.readline()
        except TimeoutError:
            raise GeneratorFailed(f"{self._module} gave no answer for {timeout_s:.0f} s (log: {self._log}).") from None
        if not line:
            raise GeneratorFailed(f"{self._module} ended early:\n{self._log.read_text('utf-8', 'replace')[-2000:]}")
        return line


def times_of(load: LoadResult) -> tuple["array.array[float]", "array.array[float]"]:
    """Return the latencies in seconds and the wall-clock times of the answers, by place in the order."""
    both = array.array("d")
    both.frombytes(Path(load.times).read_bytes())
    half = len(both) // 2
    return both[:half], both[half:]
