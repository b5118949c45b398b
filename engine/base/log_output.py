"""Write log lines to standard output from a thread, so that a slow reader of the pipe does not stop the event loop.

Measured: with a thousand connections that failed within seconds, writes to the pipe of a busy supervisor held up the
event loop of a delivering process for up to 150 ms.
"""

import atexit
import os
import threading
from collections import deque
from contextlib import suppress
from typing import Final, TextIO

MAX_WAITING_CHARS: Final = 4 * 1024 * 1024  # about 10,000 lines; beyond it `write` waits for the reader
MAX_WAIT_S: Final = 1.0  # of one `write` for space; then its line is dropped
EXIT_WAIT_S: Final = 2.0  # of `close` for the last lines, when the process ends


class LogOutput:
    """A text stream that queues lines in memory and writes them in order from a thread; lives as long as its process.

    A line that can't be written is dropped: a full disk must not stop the work that the line reports. Lines that are
    still queued when the process is killed are lost.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lines: deque[str] = deque()
        self._chars = 0
        self._changed = threading.Condition()
        self._process = 0  # id of the process that runs the thread: a fork does not copy threads
        atexit.register(self.close)

    def write(self, text: str) -> int:
        """Queue a line (or a part of one); wait only where the reader is far behind."""
        with self._changed:
            if self._process != os.getpid():
                self._start()
            if self._chars > MAX_WAITING_CHARS and not self._changed.wait_for(self._has_room, MAX_WAIT_S):
                return 0
            self._lines.append(text)
            self._chars += len(text)
            self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: the thread flushes what it writes."""

    def close(self) -> None:
        """Wait until every queued line is written, at most EXIT_WAIT_S."""
        with self._changed:
            if self._process == os.getpid():
                self._changed.wait_for(lambda: not self._chars, EXIT_WAIT_S)

    def _has_room(self) -> bool:
        return self._chars <= MAX_WAITING_CHARS

    def _start(self) -> None:
        self._process = os.getpid()
        threading.Thread(target=self._write_all, name="log output", daemon=True).start()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                text = "".join(self._lines)
                self._lines.clear()
            with suppress(OSError, ValueError):
                self._file.write(text)
                self._file.flush()
            with self._changed:
                self._chars -= len(text)
                self._changed.notify_all()
