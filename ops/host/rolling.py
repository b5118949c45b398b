"""Rolling restarts: replace processes one after the other, each after its successor is ready."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ops.host import control
from ops.host.control import Refused, Say
from ops.host.supervise import ChildStatus, StartFailed, Supervisor

READY_S: Final = 60.0
_KINDS: Final = ("api", "host", "relay", "mx", "mta", "worker", "metrics")  # in the order of a message's way


def kind(name: str) -> str:
    """Return the kind of a process from its name: `mta` for `mta-2`, `api` for `api (leaving)`."""
    return name.partition(" ")[0].partition("-")[0]


class Roller:
    """Restarts the processes of one supervisor; allows one rolling restart at a time."""

    def __init__(self, supervisor: Supervisor, say: Callable[[str], None]) -> None:
        self._supervisor = supervisor
        self._say = say
        self._busy = asyncio.Lock()

    async def restart(
        self, names: Sequence[str] = (), told: Callable[[str], Awaitable[None]] | None = None
    ) -> list[str]:
        """Restart the named processes, or all; calls `told` after each one.

        Raises Refused for an unknown name (before any restart), or when a new process does not become ready; the
        remaining processes then keep running.
        """
        known = [one.name for one in self._supervisor.children() if _is_renewable(one.name)]
        wanted = sorted(chosen(known, names), key=lambda one: _KINDS.index(kind(one)))
        if self._busy.locked():
            raise Refused("A rolling restart is already in progress. Wait until it is done.")
        async with self._busy:
            if self._supervisor.forks is not None:
                self._supervisor.forks.refresh()  # new processes run the code now on disk
            for index, name in enumerate(wanted):
                try:
                    await self._supervisor.renew(name, READY_S)
                except StartFailed as error:
                    left = ", ".join(wanted[index + 1 :]) or "nothing"
                    raise Refused(f"{error}\nThe rolling restart stopped here. Not restarted: {left}.") from error
                self._say(f"Replaced {name}")
                if told is not None:
                    await told(name)
        return wanted

    async def act(self, asked: dict[str, Any], say: Say) -> None:
        """Handle a request of a command (`ops.host.control`)."""
        match asked:
            case {"do": "status"}:
                for row in await asyncio.to_thread(status, self._supervisor.children()):
                    await say({"process": row})
            case {"do": "restart", "names": [*names]}:

                async def told(name: str) -> None:
                    await say({"restarted": name})

                await self.restart([str(name) for name in names], told)
            case _:
                raise Refused("The running service does not know this request. Use the `ops` of the version that runs.")


def chosen(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the `known` processes that match a name (`mta-2`) or kind (`mta`) in `names`; all if `names` is empty.

    Raises Refused for a name that matches none.
    """
    unknown = [name for name in names if not any(name in (one, kind(one)) for one in known)]
    if unknown:
        kinds = ", ".join(dict.fromkeys(kind(one) for one in known))
        raise Refused(f"No process here is named {', '.join(unknown)}. There are: {', '.join(known)} (kinds: {kinds}).")
    return [one for one in known if not names or one in names or kind(one) in names]


def status(children: Iterable[ChildStatus]) -> list[dict[str, Any]]:
    """Return the rows of `ops status`; reads memory use from /proc."""
    return [asdict(one) | {"kind": kind(one.name), "memory_bytes": _memory(one.pid)} for one in children]


def ask_restart(state: Path, names: Sequence[str]) -> Iterable[str]:
    """Ask the supervisor for a restart and yield each name when it is done; raises the errors of `control.ask`."""
    timeout_s = READY_S + 60.0  # plus the drain of the old process
    for line in control.ask(state, {"do": "restart", "names": list(names)}, timeout_s):
        yield line["restarted"]


def ask_status(state: Path) -> list[dict[str, Any]]:
    """Ask the supervisor for the rows of `ops status`."""
    return [line["process"] for line in control.ask(state, {"do": "status"}, 10.0)]


def _is_renewable(name: str) -> bool:
    return kind(name) in _KINDS and " " not in name  # a name with a space is a process that is being replaced


def _memory(pid: int | None) -> int | None:
    """Return the memory of a process and its children in bytes, shared pages counted once; None if unknown."""
    if pid is None:
        return None
    found = [_pss_bytes(one) for one in (pid, *_children(pid))]
    known = [one for one in found if one is not None]
    return sum(known) if known else None


def _children(pid: int) -> list[int]:
    try:
        texts = [task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def _pss_bytes(pid: int) -> int | None:
    """Return the proportional set size (PSS, proc(5)) in bytes."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None
