"""The real mta process beside a test's world: started with its settings, stopped, harmed, and read."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.base.settings import to_environ
from tests.harness import fork_server
from tests.harness.outbound import World
from tests.harness.patience import PATIENCE_S

PLAIN = "from mta.process import main; main()"


class Process:
    """`python -c PROGRAM --name NAME`; what it prints is in `log`."""

    def __init__(self, here: World, log: Path, name: str, more: Mapping[str, str], **changes: Any) -> None:
        self.log = log
        self._name = name
        self._environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("WAYBILL_")},
            **to_environ(msgspec.structs.replace(here.settings, **changes)),
            **more,
        }
        self._process: fork_server.Started | None = None

    async def start(self, program: str = PLAIN) -> None:
        """Start, or start again; returns at once."""
        with self.log.open("ab") as log:
            words = [program, "--name", self._name]
            self._process = fork_server.start("-c", words, environ=self._environ, stdout=log, stderr=log)

    def send(self, number: signal.Signals) -> None:
        """A signal to it."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; the exit status."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, timeout_s)

    @property
    def told(self) -> str:
        """What it printed so far."""
        return self.log.read_text("utf-8", "replace")

    async def until_told(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Until it has printed this."""
        async with asyncio.timeout(timeout_s):
            while text not in self.told:
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End it whatever it does."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.to_thread(self._process.wait)


@contextlib.asynccontextmanager
async def process(
    here: World, folder: Path, *, name: str = "mta-1", program: str = PLAIN, more: Mapping[str, str] | None = None,
    **changes: Any,
) -> AsyncIterator[Process]:  # fmt: skip
    """A running one; killed at the end."""
    made = Process(here, folder / f"{name}.log", name, more or {}, **changes)
    await made.start(program)
    try:
        yield made
    finally:
        await made.kill()
