"""Starts to write PostgreSQL's changed files to disk every second, before the kernel writes all of them at once.

PostgreSQL enlarges a table by pages of zeros, which it does not sync before the next checkpoint. Linux keeps them in
memory for 30 s (`vm.dirty_expire_centisecs`) and then writes all that are old enough, every 5 s. Commits wait for the
disk meanwhile: 60 to 210 ms while 1,250 messages a second were accepted (ops/decisions/0085).
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

INTERVAL_S: Final = 1.0
MIN_DIRTY_KIB: Final = 4 * 1024  # of the host: below, a write lasts no longer than a commit
_CLOCK_STEP_NS: Final = 20_000_000  # the kernel stamps files by a clock of 100 to 1,000 steps a second
_MEMORY: Final = Path("/proc/meminfo")
_SYNC_FILE_RANGE_WRITE: Final = 2  # start writing, wait for nothing (sync_file_range(2))

_Sync = Callable[[int, ctypes.c_longlong, ctypes.c_longlong, int], int]


class WriteBack:
    """The files two levels below a folder, such as those in `base/DATABASE` of PostgreSQL's data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sync: _Sync | None = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux only
        self._since_ns = 0

    def start_writing(self) -> int:
        """Start to write the files that changed since the last call, and return their number; does not wait for the
        disk, unless its queue is full. Raises OSError if the folder cannot be read.
        """
        if self._sync is None:
            return 0
        since_ns, self._since_ns = self._since_ns, time.time_ns() - _CLOCK_STEP_NS
        started = 0
        with os.scandir(self._folder) as databases:
            for database in databases:
                with os.scandir(database) as files:
                    for file in files:
                        started += self._start_one(file, since_ns, self._sync)
        return started

    def _start_one(self, file: os.DirEntry[str], since_ns: int, sync: _Sync) -> bool:
        try:
            if file.stat(follow_symlinks=False).st_mtime_ns < since_ns:
                return False
            opened = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # PostgreSQL has removed it
            return False
        try:
            return sync(opened, ctypes.c_longlong(0), ctypes.c_longlong(0), _SYNC_FILE_RANGE_WRITE) == 0
        finally:
            os.close(opened)


def dirty_kib(memory: Path = _MEMORY) -> int:
    """Return how much the host has still to write to its disks, in KiB; 0 if the system does not say."""
    try:
        lines = memory.read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Dirty:")), 0)


async def keep_writing(folder: Path) -> None:
    """Write changed files back until cancelled."""
    write_back = WriteBack(folder)
    while True:
        await asyncio.sleep(INTERVAL_S)
        if dirty_kib() >= MIN_DIRTY_KIB:
            try:
                await asyncio.to_thread(write_back.start_writing)
            except OSError:  # the kernel writes them later
                continue
