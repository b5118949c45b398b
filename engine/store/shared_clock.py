"""The clock file of local mode: how far service time is ahead, and what the processes of this host still have to do.

All processes of an installation map the file into memory, so that none reads an older time once a change is written.
Each process that acts at due times has a slot, which it alone writes. Live mode has no such file.
"""

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from engine.base.clock import Calls

NAME: Final = "clock"
_BYTES: Final = 4096
_CELL: Final = 8  # a signed integer; aligned, so that it is read and written as a whole
# Cells: microseconds ahead; number of the last step; from here on, one for each `Calls`.
_AHEAD, _STEP, _CALLED = 0, 1, 2
_WIDTH: Final = 8  # cells of a slot
_SLOTS: Final = range(_WIDTH, _BYTES // _CELL, _WIDTH)  # the first cell of each
_PID, _SEEN, _BUSY, _DUE = 0, 1, 2, 3


class ClockSlot(NamedTuple):
    """The state of a process: the last step that it has seen, how many of its tasks are at work, and when its next
    appointment is due (service time, in Unix microseconds; 0: it has none)."""

    pid: int
    seen: int
    busy: int
    due_us: int


class SharedClock:
    """The mapped clock file of a state folder; lives as long as the process."""

    def __init__(self, state: Path) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self._path = state / NAME
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < _BYTES:
                os.ftruncate(file, _BYTES)
            self._cells = memoryview(mmap.mmap(file, _BYTES)).cast("q")
        finally:
            os.close(file)
        self._slot = 0  # of this process; 0: it has none

    def ahead_us(self) -> int:
        """Return by how many microseconds service time is ahead of machine time."""
        return self._cells[_AHEAD]

    @property
    def step(self) -> int:
        """The number of the last step; each call to look for due work is one."""
        return self._cells[_STEP]

    def called(self, whom: Calls) -> int:
        """Return the number of the last step that called these."""
        return self._cells[_CALLED + whom]

    def begin(self, ahead_us: int) -> None:
        """Set how far service time is ahead, and free all slots. Called when the installation starts: no process has a
        slot then, but after a crash other processes may have the ids that are written there."""
        for first in _SLOTS:
            self._cells[first + _PID] = 0
        self.move(ahead_us)

    # -- for the process that moves the clock ------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the right to move the clock within the block; yields False if another process has it."""
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(file)

    def move(self, ahead_us: int) -> None:
        """Set how far service time is ahead."""
        self._cells[_AHEAD] = ahead_us

    def call(self, whom: Calls) -> int:
        """Call all processes to look for due work; return the number of the step."""
        step = self.step + 1
        for one in range(whom + 1):
            self._cells[_CALLED + one] = step
        self._cells[_STEP] = step
        return step

    def slots(self) -> list[ClockSlot]:
        """Return the slots of living processes."""
        found = [ClockSlot(*self._cells[first : first + 4]) for first in _SLOTS]
        return [slot for slot in found if slot.pid and _lives(slot.pid)]

    # -- for a process that acts at due times ------------------------------------------------------

    def take_slot(self) -> None:
        """Take a free slot for this process, or one of a process that has ended."""
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX)  # its locks are apart from those of flock: taking a slot waits for no move
            free = (first for first in _SLOTS if not (pid := self._cells[first + _PID]) or not _lives(pid))
            self._slot = next(free)
            self.write(self.step, busy=0, due_us=0)
            self._cells[self._slot + _PID] = os.getpid()
        finally:
            os.close(file)

    def leave_slot(self) -> None:
        """Give the slot of this process up."""
        self._cells[self._slot + _PID] = 0
        self._slot = 0

    def write(self, seen: int, *, busy: int, due_us: int) -> None:
        """Write the state of this process; `seen` last, because it says that the others are those of the step."""
        self._cells[self._slot + _DUE] = due_us
        self._cells[self._slot + _BUSY] = busy
        self._cells[self._slot + _SEEN] = seen


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
