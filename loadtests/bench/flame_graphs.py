"""Record flame graphs of the counted run, with py-spy on one api worker and one mta process."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ops.host import launch

RATE_HZ: Final = 200
_FORMATS: Final = (("flamegraph", "svg"), ("raw", "txt"))  # raw: folded stacks, for grep and for comparing two runs
_START_S: Final = 1.0
_WRITE_S: Final = 30.0


class NoProfiler(RuntimeError):  # noqa: N818 - named for what it says
    """py-spy is not installed or has no permission."""


def program() -> str:
    """Return the path of py-spy; raises NoProfiler."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        raise NoProfiler("--profile needs py-spy: `pip install py-spy`, or install the lock file of the dev group.")
    return found


class FlameRecorders:
    """Records while entered and writes the files on exit; does nothing without targets."""

    def __init__(self, targets: dict[str, int], folder: Path) -> None:
        """Prepare to record `targets`: process id by file name."""
        self._targets = targets
        self._folder = folder
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        for name, pid in self._targets.items():
            for form, ending in _FORMATS:
                self._processes.append(await self._record(pid, form, self._folder / f"{name}.{ending}"))
        if self._processes:
            await asyncio.sleep(_START_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)  # ends the recording and writes the file
        for process in self._processes:
            try:
                async with asyncio.timeout(_WRITE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _record(self, pid: int, form: str, file: Path) -> asyncio.subprocess.Process:
        # Without stopping the process for each sample: a rare torn stack costs less than a run that stutters.
        words = ["record", "--nonblocking", "--pid", str(pid), "--rate", str(RATE_HZ), "--format", form]
        with (self._folder / "py-spy.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *launch.command([program(), *words, "--output", str(file)]), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
