"""Choose the folder for the files of test servers: in memory if the machine has enough.

A database of a test's own is 800 small files. A disk takes 50 to 500 ms of the kernel's time for them, memory 30;
and nothing in these tests outlives a power cut: what must, is tested on a disk (`ops up`).
"""

import os
from pathlib import Path

_MEMORY = Path("/dev/shm")
# Of a container: version 2 and 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_ROOM = 2 * 1024**3  # a worker's servers take 300 to 400 MB
_PLENTY = 8 * 1024**3  # each worker and what it starts take a gigabyte besides, and these files can't be put aside


def folder() -> Path | None:
    """The folder that is memory; None where there is none or where it could run out."""
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    found = os.statvfs(_MEMORY)
    roomy = found.f_bavail * found.f_frsize >= _ROOM and _available() >= _PLENTY
    return _MEMORY if roomy and all(_limit(Path(one)) >= _PLENTY for one in _LIMITS) else None


def _available() -> int:
    """Return the memory available without swapping, in octets; 0 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def _limit(file: Path) -> float:
    """The bound of a control group; none when it has none."""
    try:
        return float(file.read_text())
    except (OSError, ValueError):  # "max"
        return float("inf")
