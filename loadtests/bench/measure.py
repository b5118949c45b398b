"""Read CPU, context switches and memory of processes from /proc, by role, and describe the machine."""

import contextlib
import os
import platform
import time
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from ops.host import interpreter

PROC: Final = Path("/proc")
SERVER_ROLES: Final = ("api", "relay", "mx", "mta", "worker", "postgres", "redis")
OUTSIDE_ROLES: Final = ("generator", "sink", "dns")
_TICK_MS: Final = 1000 / os.sysconf("SC_CLK_TCK")
_SYNCS: Final = 50
_PAGE: Final = b"\0" * 8192


class RoleUsage(Struct, frozen=True):
    """The CPU and context switches of one role since its processes began."""

    cpu_ms: float = 0.0
    switches: int = 0  # of the living threads; those that ended took theirs along


class UsageSample(Struct, frozen=True):
    """The usage of all roles and of the machine at one time."""

    roles: dict[str, RoleUsage]
    machine_busy_ms: float
    machine_stolen_ms: float  # by other guests of the host
    at: float  # monotonic, s


def role_of(name: str) -> str:
    """Return the role of a supervised process by its name."""
    kind, dash, _number = name.partition("-")
    return {"valkey": "redis"}.get(name, kind if dash else name)


def roots_by_role(pids: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the main processes by role."""
    roots: dict[str, list[int]] = {}
    for name, pid in pids.items():
        roots.setdefault(role_of(name), []).append(pid)
    return roots


def sample(roots: Mapping[str, Iterable[int]]) -> UsageSample:
    """Return CPU (user and system) and context switches of each role's process trees.

    A parent's figures include ended children once it has waited for them (proc(5): cutime, cstime), so the CPU of
    ended PostgreSQL
    backends is not lost.
    """
    stats = _stats()
    trees = {role: _tree(pids, stats) for role, pids in roots.items()}
    at = time.monotonic()
    usage = {
        role: RoleUsage(sum(stats[pid].cpu_ms for pid in tree), sum(_switches(pid) for pid in tree))
        for role, tree in trees.items()
    }
    busy, stolen = _machine_ms()
    return UsageSample(usage, busy, stolen, at)


async def percent_of_core(roots: Mapping[str, Iterable[int]], work: Awaitable[object]) -> dict[str, float]:
    """Return the CPU by role in percent of a core while `work` runs."""
    before = sample(roots)
    await work
    after = sample(roots)
    took_ms = (after.at - before.at) * 1000
    return {role: round(100 * (after.roles[role].cpu_ms - before.roles[role].cpu_ms) / took_ms, 1) for role in roots}


def memory_mb(roots: Mapping[str, Iterable[int]]) -> tuple[dict[str, float], str]:
    """Return memory by role in MiB, and its kind.

    `pss` divides shared pages among their users; `rss`, used where the kernel does not allow reading PSS, counts shared
    pages in each process.
    """
    stats = _stats()
    trees = {role: _tree(pids, stats) for role, pids in roots.items()}
    for kind, file, field in (("pss", "smaps_rollup", "Pss:"), ("rss", "status", "VmRSS:")):
        with contextlib.suppress(PermissionError):
            found = {role: sum(_kilobytes(pid, file, field) for pid in tree) / 1024 for role, tree in trees.items()}
            if sum(found.values()) > 0:
                return found, kind
    return {}, "rss"


def peaks_mb(roots: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """Return the highest resident memory of any one process of each role in MiB, shared pages included (proc(5):
    VmHWM)."""
    stats = _stats()
    trees = {role: _tree(pids, stats) for role, pids in roots.items()}
    return {
        role: max((_kilobytes(pid, "status", "VmHWM:") for pid in tree), default=0) / 1024
        for role, tree in trees.items()
    }


def reset_peaks(roots: Mapping[str, Iterable[int]]) -> None:
    """Let `peaks_mb` count from now on (proc(5): clear_refs); without the permission it counts from the start."""
    stats = _stats()
    for pids in roots.values():
        for pid in _tree(pids, stats):
            with contextlib.suppress(OSError):
                (PROC / str(pid) / "clear_refs").write_text("5")


def resident_mb(pid: int) -> float:
    """Return the resident memory of one process in MiB, shared pages included (proc(5): VmRSS)."""
    return _kilobytes(pid, "status", "VmRSS:") / 1024


def tree_of(root: int) -> list[int]:
    """Return a process and all its descendants."""
    return sorted(_tree([root], _stats()))


def machine(folder: Path, filesystem: str) -> dict[str, object]:
    """Describe the machine; `sync_us` is one `fdatasync` of 8 KB on the state folder's disk."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_build": interpreter.words(interpreter.build()),
        "filesystem": filesystem,
        "sync_us": round(_sync_us(folder), 1),
    }


class _Stat(Struct, frozen=True):
    parent: int
    cpu_ms: float


def _stats() -> dict[int, _Stat]:
    """Read parent and CPU, with waited-for children, of every process (proc(5), /proc/pid/stat fields 4 and 14-17)."""
    found = {}
    for entry in os.listdir(PROC):  # noqa: PTH208 - names suffice
        if entry.isdigit():
            with contextlib.suppress(OSError):
                text = (PROC / entry / "stat").read_text("ascii", "replace")
                fields = text[text.rindex(")") + 2 :].split(" ")
                found[int(entry)] = _Stat(int(fields[1]), sum(map(int, fields[11:15])) * _TICK_MS)
    return found


def _tree(roots: Iterable[int], stats: Mapping[int, _Stat]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    tree: set[int] = set()
    waiting = [pid for pid in roots if pid in stats]
    while waiting:
        pid = waiting.pop()
        if pid not in tree:
            tree.add(pid)
            waiting.extend(children.get(pid, []))
    return tree


def _switches(pid: int) -> int:
    """Return voluntary and involuntary context switches of all living threads."""
    count = 0
    with contextlib.suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                for line in (thread / "status").read_text("ascii", "replace").splitlines():
                    if "ctxt_switches:" in line:
                        count += int(line.rsplit("\t", 1)[1])
    return count


def _kilobytes(pid: int, file: str, field: str) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in (PROC / str(pid) / file).read_text("ascii", "replace").splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    return 0


def _machine_ms() -> tuple[float, float]:
    """Return busy and stolen time of all cores since boot in ms (proc(5), first line of /proc/stat)."""
    fields = [int(word) for word in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, stolen = fields[:8]
    return (user + nice + system + irq + softirq) * _TICK_MS, stolen * _TICK_MS


def _cpu_model() -> str:
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _sync_us(folder: Path) -> float:
    """Return the median duration of an fdatasync in µs; each commit waits for one."""
    file = folder / "sync"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    times = []
    try:
        for _ in range(_SYNCS):
            os.pwrite(descriptor, _PAGE, 0)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        file.unlink()
    return sorted(times)[len(times) // 2] * 1e6
