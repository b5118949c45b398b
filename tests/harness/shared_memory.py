"""The System V shared memory of servers, which outlives a server that is killed with SIGKILL.

PostgreSQL holds one small segment for each data folder, and the kernel has room for 4,096 (shmmni): servers of tests
must not leave theirs behind.
"""

from pathlib import Path

_TABLE = Path("/proc/sysvipc/shm")  # columns: key, shmid, perms, size, cpid, lpid, nattch, …


def held_by(creator: int) -> frozenset[str]:
    """Return the ids of the segments that process `creator` made and that a process uses; none where /proc has none."""
    return frozenset(row[1] for row in _rows() if row[4] == str(creator) and row[6] != "0")


def left(segments: frozenset[str]) -> frozenset[str]:
    """Return those of `segments` that exist."""
    return segments & {row[1] for row in _rows()}


def _rows() -> list[list[str]]:
    try:
        return [line.split() for line in _TABLE.read_text().splitlines()[1:]]
    except FileNotFoundError:
        return []
