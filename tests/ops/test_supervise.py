"""Supervision: what dies comes back, what is told to stop gets its grace, and nothing is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ops.host import launch
from ops.host.supervise import ProcessSpec, StartFailed, Supervisor
from tests.harness.patience import PATIENCE_S

ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
FOREVER = "import time\nwhile True: time.sleep(1)"
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('{mark}', 'w')\n" + FOREVER


def spec(name: str, code: str, tmp_path: Path, **more: object) -> ProcessSpec:
    argv = launch.command([sys.executable, "-I", "-c", code])
    wanted: dict[str, object] = {"name": name, "argv": tuple(argv), "env": ENV, "log": tmp_path / f"{name}.log"}
    return ProcessSpec(**(wanted | more))  # type: ignore[arg-type]


def gone(pid: int) -> bool:
    """True when the process has ended, reaped or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


async def until(true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.02)


async def test_a_dead_process_is_started_again_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    ended: list[int] = []
    async with Supervisor(told.append) as supervisor:
        supervisor.start(spec("one", FOREVER, tmp_path, ended=ended.append))
        await supervisor.wait_ready("one")
        first = supervisor.pids()["one"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: supervisor.pids().get("one", first) != first)
        second = supervisor.pids()["one"]

        assert supervisor.restarts("one") == 1
        assert ended == [first]
        assert "one was ended by SIGKILL; starting it again in 0.2 s" in told[0]
    assert gone(second)


async def test_pauses_between_restarts_double(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    code = f"import time\nwith open({str(marks)!r}, 'a') as f: f.write(str(time.monotonic()) + '\\n')"
    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("brief", code, tmp_path))
        await until(lambda: marks.exists() and len(marks.read_text().splitlines()) >= 4)

    times = [float(line) for line in marks.read_text().splitlines()]
    between = [later - earlier for earlier, later in pairwise(times[:4])]  # each with the start of a process
    assert [seconds >= pause for seconds, pause in zip(between, (0.2, 0.4, 0.8), strict=True)] == [True] * 3, between


@pytest.mark.parametrize(
    ("program", "missing", "told"),
    [
        ("raise SystemExit('the moon is full')", None, r"broken keeps ending at its start[\s\S]*the moon is full"),
        ("", ["/nonexistent/server"], "can't start /nonexistent/server"),
    ],
    ids=["ends", "does not exist"],
)
async def test_a_process_that_never_gets_ready_fails_the_start_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, missing: list[str] | None, told: str
) -> None:
    monkeypatch.setattr("ops.host.supervise.START_PATIENCE_S", 0.1)

    async def never(_pid: int) -> bool:
        return False

    argv = {"argv": tuple(launch.command(missing))} if missing else {}
    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("broken", program, tmp_path, ready=never, **argv))
        with pytest.raises(StartFailed, match=told):
            await supervisor.wait_ready(timeout_s=PATIENCE_S)


async def test_a_process_that_stays_unready_fails_after_the_timeout(tmp_path: Path) -> None:
    async def refused(_pid: int) -> bool:
        raise ConnectionRefusedError

    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("mute", FOREVER, tmp_path, ready=refused))
        with pytest.raises(StartFailed, match="mute is not ready after 0 s"):
            await supervisor.wait_ready("mute", timeout_s=0.3)


async def test_a_process_may_finish_its_work_within_the_grace(tmp_path: Path) -> None:
    done, begun = tmp_path / "done", tmp_path / "begun"
    code = (
        "import signal, sys, time\n"
        f"def finish(*_):\n time.sleep(0.3)\n open({str(done)!r}, 'w')\n sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, finish)\nopen({str(begun)!r}, 'w')\n{FOREVER}"
    )
    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("polite", code, tmp_path))
        await until(begun.exists)
        await supervisor.stop("polite")

        assert done.exists()
        assert supervisor.pids() == {}


async def test_a_process_that_ignores_the_stop_signal_is_killed_after_its_grace(tmp_path: Path) -> None:
    told: list[str] = []
    mark = tmp_path / "mark"
    async with Supervisor(told.append) as supervisor:
        supervisor.start(spec("stubborn", STUBBORN.format(mark=mark), tmp_path, grace_s=0.2))
        await until(mark.exists)
        pid = supervisor.pids()["stubborn"]
        await supervisor.stop("stubborn")

        assert gone(pid)
        assert told == ["stubborn did not end within 0 s; ending it by force"]


async def test_a_stopped_process_stays_down(tmp_path: Path) -> None:
    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("one", FOREVER, tmp_path))
        await supervisor.wait_ready()
        await supervisor.stop("one")
        await asyncio.sleep(0.5)

        assert supervisor.pids() == {}
        assert supervisor.restarts("one") == 0


async def test_two_processes_of_one_name_are_refused(tmp_path: Path) -> None:
    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("one", FOREVER, tmp_path))
        with pytest.raises(ValueError, match="one runs already"):
            supervisor.start(spec("one", FOREVER, tmp_path))


def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import asyncio, sys
from pathlib import Path
from ops.host import launch
from ops.host.supervise import ProcessSpec, Supervisor
from tests.harness.patience import PATIENCE_S
async def main():
    async with Supervisor(print) as supervisor:
        for name in ("a", "b"):
            argv = launch.command([sys.executable, "-I", "-c", {FOREVER!r}])
            log = Path({str(tmp_path)!r}, name + ".log")
            supervisor.start(ProcessSpec(name=name, argv=tuple(argv), env={{}}, log=log))
        await supervisor.wait_ready()
        await asyncio.sleep(0.3)
        Path({str(pids)!r}).write_text(" ".join(map(str, supervisor.pids().values())))
        await asyncio.sleep(60)
asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root) as parent:
        deadline = time.monotonic() + PATIENCE_S
        while not (pids.exists() and pids.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        children = [int(word) for word in pids.read_text().split()]
        parent.kill()

    assert len(children) == 2
    while not all(gone(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(gone(pid) for pid in children)


async def test_what_runs_beside_a_process_ends_and_begins_with_it(tmp_path: Path) -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def beside() -> None:
        begun.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("one", FOREVER, tmp_path, beside=beside))
        await until(lambda: len(begun) == 1)
        assert not ended
        os.kill(supervisor.pids()["one"], signal.SIGKILL)
        await until(lambda: len(begun) == 2)
        assert len(ended) == 1
        await supervisor.stop("one")
        assert len(ended) == 2


async def test_a_process_goes_on_when_the_work_beside_it_fails(tmp_path: Path) -> None:
    async def beside() -> None:
        raise LookupError("no such table")

    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("one", FOREVER, tmp_path, beside=beside))
        log = tmp_path / "one.log"
        await until(lambda: log.exists() and "no such table" in log.read_text())
        first = supervisor.pids()["one"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: supervisor.pids().get("one", first) != first)


async def test_output_without_a_log_file_goes_where_that_of_the_supervisor_goes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    printed = ""

    def has_printed() -> bool:
        nonlocal printed
        printed += capfd.readouterr().out
        return "from the child" in printed

    async with Supervisor(lambda _: None) as supervisor:
        supervisor.start(spec("one", f"print('from the child', flush=True)\n{FOREVER}", tmp_path, log=None))
        await until(has_printed)
    assert not list(tmp_path.iterdir())
