"""Rolling restarts: one process after the other, each ready before the next one goes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ops import control
from ops.control import Refused, Say
from ops.supervise import Standing, StartFailed, Supervisor

READY_S: Final = 60.0
_KINDS: Final = ("api", "relay", "mta", "worker", "metrics")  # in the order of a message's way


def kind(name: str) -> str:
    """What sort of process this is: `mta` of `mta-2`, `api` of `api (leaving)`."""
    return name.partition(" ")[0].partition("-")[0]


class Roller:
    """Restarts the processes of one supervisor, never two rounds at once."""

    def __init__(self, supervisor: Supervisor, say: Callable[[str], None]) -> None:
        self._supervisor = supervisor
        self._say = say
        self._busy = asyncio.Lock()

    async def restart(
        self, names: Sequence[str] = (), told: Callable[[str], Awaitable[None]] | None = None
    ) -> list[str]:
        """Replace these, or all of the service; `told` hears of each that is done. Raises Refused: for a name that
        is unknown before anything is done, for a process that does not get ready without going on to the next."""
        known = [one.name for one in self._supervisor.standings() if _is_renewable(one.name)]
        wanted = sorted(chosen(known, names), key=lambda one: _KINDS.index(kind(one)))
        if self._busy.locked():
            raise Refused("A rolling restart is under way already.")
        async with self._busy:
            for place, name in enumerate(wanted):
                try:
                    await self._supervisor.renew(name, READY_S)
                except StartFailed as error:
                    left = ", ".join(wanted[place + 1 :]) or "nothing"
                    raise Refused(f"{error}\nStopped here; not restarted: {left}.") from error
                self._say(f"{name} was replaced")
                if told is not None:
                    await told(name)
        return wanted

    async def act(self, asked: dict[str, Any], say: Say) -> None:
        """Do what a command asks (`ops.control`)."""
        match asked:
            case {"do": "status"}:
                for row in await asyncio.to_thread(status, self._supervisor.standings()):
                    await say({"process": row})
            case {"do": "restart", "names": [*names]}:

                async def told(name: str) -> None:
                    await say({"restarted": name})

                await self.restart([str(name) for name in names], told)
            case _:
                raise Refused("That is no question this version understands.")


def chosen(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return those of the `known` processes that the operator means by name (`mta-2`) or kind (`mta`); all by none.

    Raises Refused for a name that is neither.
    """
    unknown = [name for name in names if not any(name in (one, kind(one)) for one in known)]
    if unknown:
        kinds = ", ".join(dict.fromkeys(kind(one) for one in known))
        raise Refused(f"No process here is called {', '.join(unknown)}; there are {', '.join(known)} (kinds: {kinds}).")
    return [one for one in known if not names or one in names or kind(one) in names]


def status(standings: Iterable[Standing]) -> list[dict[str, Any]]:
    """What `ops status` shows of each; reads /proc."""
    return [asdict(one) | {"kind": kind(one.name), "memory_bytes": _memory(one.pid)} for one in standings]


def ask_restart(state: Path, names: Sequence[str]) -> Iterable[str]:
    """For the command: names as they are done. Raises what `ops.control.ask` raises."""
    patience_s = READY_S + 60.0  # the drain of the old one comes on top
    for line in control.ask(state, {"do": "restart", "names": list(names)}, patience_s):
        yield line["restarted"]


def ask_status(state: Path) -> list[dict[str, Any]]:
    """For the command."""
    return [line["process"] for line in control.ask(state, {"do": "status"}, 10.0)]


def _is_renewable(name: str) -> bool:
    return kind(name) in _KINDS and " " not in name  # one that comes or leaves is half of a replacement


def _memory(pid: int | None) -> int | None:
    """Memory of a process and what it forked, pages that they share counted once; None where it can't be told."""
    if pid is None:
        return None
    found = [_proportional(one) for one in (pid, *_children(pid))]
    known = [one for one in found if one is not None]
    return sum(known) if known else None


def _children(pid: int) -> list[int]:
    try:
        texts = [task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def _proportional(pid: int) -> int | None:
    """PSS (proc(5))."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None
