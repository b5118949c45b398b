"""Console output of `ops up`: a status line and colours on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status


class UpConsole:
    """Prints progress to standard output and errors to standard error, for one run of `ops up`.

    As a context manager it removes the status line at exit.
    """

    def __init__(self) -> None:
        self._out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
        self._live: Status | None = None

    @property
    def terminal(self) -> bool:
        """True if standard output is a terminal."""
        return self._out.is_terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_status()

    def stage(self, text: str) -> None:
        """Show the current step; on a terminal it replaces the previous one."""
        if not self.terminal:
            self._out.print(f"{text}…")
        elif self._live is None:
            self._live = self._out.status(f"{text}…")
            self._live.start()
        else:
            self._live.update(f"{text}…")

    def say(self, text: str) -> None:
        """Print one line."""
        self._out.print(text)
        sys.stdout.flush()

    def ready(self, text: str) -> None:
        """Print the line that says the service is ready, and remove the status line."""
        self._stop_status()
        self._out.print(text, style="bold green")
        sys.stdout.flush()

    def fail(self, text: str) -> None:
        """Print an error and remove the status line."""
        self._stop_status()
        Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False).print(text, style="red")

    def _stop_status(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
