"""Replacing processes: the next one is ready before the last one goes, and a round stops at the first that fails."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ops.host import control, launch, rolling
from ops.host.control import NoSupervisor, Refused
from ops.host.rolling import Roller
from ops.host.supervise import ProcessSpec, StartFailed, Supervisor
from tests.harness.patience import PATIENCE_S
from tests.ops.test_supervise import ENV

DIARY = """
import os, signal, sys, time
from pathlib import Path
name, diary, broken = sys.argv[1:4]
def note(what):
    with open(diary, "a") as file: file.write(f"{name} {what}\\n")
def leave(*_):
    note("ends"); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
if Path(broken).exists(): sys.exit("out of order")
note("serves")
os.write(int(os.environ["READY_FD"]), b"R")
while True: time.sleep(1)
"""


class Place:
    """Where processes keep a diary, and break when told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broken = folder / "broken"
        self._diary = folder / "diary"

    def spec(self, name: str, *, overlaps: bool) -> ProcessSpec:
        words = [sys.executable, "-I", "-c", DIARY, name, str(self._diary), str(self.broken)]
        log = self.folder / f"{name}.log"
        return ProcessSpec(
            name=name, argv=tuple(launch.command(words)), env=ENV, log=log, announces=1, overlaps=overlaps
        )

    def read(self) -> list[str]:
        """What was noted since the last look."""
        lines = self._diary.read_text().splitlines()
        self._diary.write_text("")
        return lines


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("ops.host.supervise.START_PATIENCE_S", 0.1)
    return Place(tmp_path)


@contextlib.asynccontextmanager
async def supervised(place: Place, **overlapping: bool) -> AsyncIterator[Supervisor]:
    async with Supervisor(lambda _: None) as supervisor:
        for name, overlaps in overlapping.items():
            supervisor.start(place.spec(name.replace("_", "-"), overlaps=overlaps))
        await supervisor.wait_ready()
        place.read()
        yield supervisor


async def test_one_that_overlaps_is_told_to_end_once_the_next_one_serves(place: Place) -> None:
    async with supervised(place, api=True) as supervisor:
        first = supervisor.pids()["api"]
        await supervisor.renew("api")
        [standing] = supervisor.children()

    assert place.read()[:2] == ["api serves", "api ends"]
    assert standing.pid != first
    assert (standing.name, standing.ready, standing.deaths, standing.renewals) == ("api", True, 0, 1)


async def test_one_of_which_there_may_be_one_only_ends_first(place: Place) -> None:
    async with supervised(place, mta_1=False) as supervisor:
        await supervisor.renew("mta-1")

        assert place.read() == ["mta-1 ends", "mta-1 serves"]


async def test_the_old_one_stays_when_the_new_one_does_not_get_ready(place: Place) -> None:
    async with supervised(place, api=True) as supervisor:
        first = supervisor.pids()
        place.broken.touch()
        with pytest.raises(StartFailed, match="out of order"):
            await supervisor.renew("api", timeout_s=PATIENCE_S)

        assert supervisor.pids() == first
        assert place.read() == []


async def test_all_are_replaced_in_the_order_of_a_messages_way(place: Place) -> None:
    async with supervised(place, worker=False, mta_1=False, api=True, dns=False) as supervisor:
        done = await Roller(supervisor, lambda _: None).restart()

    assert done == ["api", "mta-1", "worker"]
    assert place.read()[:6] == ["api serves", "api ends", "mta-1 ends", "mta-1 serves", "worker ends", "worker serves"]


async def test_a_round_stops_at_the_first_that_does_not_get_ready_and_says_what_is_left(place: Place) -> None:
    async with supervised(place, api=True, mta_1=False, worker=False) as supervisor:
        first = supervisor.pids()
        place.broken.touch()
        with pytest.raises(Refused, match=r"out of order[\s\S]*Not restarted: mta-1, worker"):
            await Roller(supervisor, lambda _: None).restart()

        assert supervisor.pids() == first


async def test_an_unknown_name_is_refused_before_anything_is_touched(place: Place) -> None:
    async with supervised(place, api=True) as supervisor:
        with pytest.raises(Refused, match=r"No process here is named relay\. There are: api"):
            await Roller(supervisor, lambda _: None).restart(["api", "relay"])

        assert place.read() == []


async def test_an_operator_asks_over_the_socket_of_the_state_folder(place: Place) -> None:
    deep = place.folder / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    with pytest.raises(NoSupervisor, match="ops up"):
        rolling.ask_status(deep)
    async with supervised(place, api=True, mta_1=False) as supervisor:
        async with control.answering(deep, Roller(supervisor, lambda _: None).act):
            done = await asyncio.to_thread(lambda: list(rolling.ask_restart(deep, ["mta"])))
            rows: list[dict[str, Any]] = await asyncio.to_thread(rolling.ask_status, deep)
            with pytest.raises(Refused, match="No process here is named x"):
                await asyncio.to_thread(lambda: list(rolling.ask_restart(deep, ["x"])))

        assert done == ["mta-1"]
        assert [(row["name"], row["renewals"], row["pid"]) for row in rows] == [
            ("api", 0, supervisor.pids()["api"]),
            ("mta-1", 1, supervisor.pids()["mta-1"]),
        ]
    assert not (deep / control.FILE).exists()
