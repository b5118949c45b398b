"""Console output of `ops up`: a status line and colours on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.status import Status


class UpConsole:
    """Prints progress to standard output and errors to standard error, for one run of `ops up`.

    As a context manager it removes the status line at exit.
    """

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        self._live: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_status()

    def stage(self, text: str) -> None:
        """Show the current step; on a terminal it replaces the previous one."""
        if not self.terminal:
            self.say(f"{text}…")
        elif self._live is None:
            from rich.console import Console  # noqa: PLC0415 - 9 MB that only a terminal needs

            self._live = Console(highlight=False, soft_wrap=True, markup=False, emoji=False).status(f"{text}…")
            self._live.start()
        else:
            self._live.update(f"{text}…")

    def say(self, text: str) -> None:
        """Print one line."""
        if self._live is not None:
            self._live.console.print(text)
        else:
            print(text, flush=True)

    def ready(self, text: str) -> None:
        """Print the line that says the service is ready, and remove the status line."""
        self._stop_status()
        self.say(f"\x1b[1;32m{text}\x1b[0m" if self.terminal else text)

    def fail(self, text: str) -> None:
        """Print an error and remove the status line."""
        self._stop_status()
        print(f"\x1b[31m{text}\x1b[0m" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)

    def _stop_status(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
