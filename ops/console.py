"""What `ops up` tells: a live line and colours on a terminal, plain lines everywhere else."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status


class UpConsole:
    """Speaks on standard output, errors on standard error; a context manager around the live line."""

    def __init__(self) -> None:
        self._out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
        self._live: Status | None = None

    @property
    def terminal(self) -> bool:
        """True when somebody watches."""
        return self._out.is_terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._quiet()

    def stage(self, text: str) -> None:
        """What is being done now; on a terminal it replaces the stage before."""
        if not self.terminal:
            self._out.print(f"{text}…")
        elif self._live is None:
            self._live = self._out.status(f"{text}…")
            self._live.start()
        else:
            self._live.update(f"{text}…")

    def say(self, text: str) -> None:
        """One lasting line."""
        self._out.print(text)
        sys.stdout.flush()

    def ready(self, text: str) -> None:
        """The line that everybody waits for; ends the live one."""
        self._quiet()
        self._out.print(text, style="bold green")
        sys.stdout.flush()

    def fail(self, text: str) -> None:
        """Why there is nothing to run."""
        self._quiet()
        Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False).print(text, style="red")

    def _quiet(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
