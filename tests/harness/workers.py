"""`--workers N`: run the tests in N forked processes, each of which takes one module after the other.

The first process imports pytest and the project once and forks. A worker imports only the modules that it takes, so a
run collects each module once. The first process receives the reports and is the only one that prints. It starts a new
worker for one that dies or whose test takes longer than its limit; that test fails with the stacks of all threads, and
the others of its module go on. tests/conftest.py registers the plugin. Measured: ops/decisions/0087.
"""

import atexit
import contextlib
import faulthandler
import gc
import os
import pickle
import selectors
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

import pytest
from msgspec import Struct, field

from ops.host import launch
from tests.harness import limits

OPTION = "--workers"
_LOOK_S = 1.0  # how often time limits are checked
_DUMP_S = 5.0  # for a worker to write the stacks of its threads
_END_S = 30.0  # for a worker to stop its servers, after an interrupt
_LAST_LINES = 60
_FAULT_FILE = "stacks.txt"
_OUTPUT = "output.txt"

Node = pytest.Item | pytest.Collector
Groups = list[list[Node]]


class Unit(Struct, frozen=True):
    """A group of modules that a worker runs, by its number, except for the tests in `skipped`, which have been run."""

    number: int
    skipped: frozenset[str] = frozenset()


class _Worker(Struct, eq=False):
    number: int
    pid: int
    link: Connection
    folder: Path
    units: list[Unit]  # the last two that it took: it takes the next before the last test of the one before
    finished: set[str] = field(default_factory=set)
    running: tuple[str, Any] | None = None  # node id and location
    since: float = 0.0
    processor_s: float = 0.0  # that the process had used when the test began
    limit_s: float = limits.DEFAULT_S


def count(config: pytest.Config) -> int:
    """Return the number of workers that the command line asks for; 0 runs the tests in this process."""
    alone = config.getoption("usepdb") or config.getoption("collectonly")
    return 0 if alone else int(config.getoption("workers"))


class Pool:
    """The plugin of the first process: hands out units, and reports what the workers tell."""

    def __init__(self, config: pytest.Config, grouped: Callable[[Sequence[Node]], Groups]) -> None:
        self._config = config
        self._grouped = grouped
        self._groups: Groups = []
        self._units: deque[Unit] = deque()
        self._begun = 0
        self._workers: dict[int, _Worker] = {}
        self._numbers = 0
        self._stopped = False
        self._selector = selectors.DefaultSelector()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Find the modules, without importing them; arguments that name single tests are collected."""
        option = self._config.option
        chosen = option.markexpr, option.keyword
        option.markexpr = option.keyword = ""  # they select tests, which only the workers see
        words = [one for word in self._config.args for one in self._files(word)]
        self._groups = self._grouped(session.perform_collect(words, genitems=False))
        option.markexpr, option.keyword = chosen
        self._units.extend(Unit(number) for number in range(len(self._groups)))
        session.testscollected = 0
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all units. An interrupt ends the workers: each receives the terminal's signal, too."""
        gc.collect()
        gc.freeze()  # a collection in a worker would copy the pages of these objects
        try:
            for _ in range(min(count(self._config), len(self._groups))):
                self._start(session)
            while self._workers:
                for key, _ in self._selector.select(_LOOK_S):
                    self._listen(session, key.data)
                self._end_overdue(session)
                if (session.shouldfail or session.shouldstop) and not self._stopped:
                    self._stop()
        finally:
            self._end_all()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _files(self, word: str) -> list[str]:
        """Return the modules below the folder that an argument names; other arguments as they are."""
        folder = self._config.invocation_params.dir / word
        if not folder.is_dir():
            return [word]
        ignored = self._config.hook.pytest_ignore_collect
        files = sorted(folder.rglob("test_*.py"))
        return [str(one) for one in files if not ignored(collection_path=one, config=self._config)] or [word]

    def _start(self, session: pytest.Session) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        folder: Path = self._config._tmp_path_factory.getbasetemp() / f"worker{number}"  # type: ignore[attr-defined]
        folder.mkdir()
        ours, theirs = Pipe()
        capture = self._config.pluginmanager.getplugin("capturemanager")
        capture.read_global_capture()  # else the worker would have it too
        sys.stdout.flush()
        sys.stderr.flush()
        first = os.getpid()
        pid = os.fork()
        if pid == 0:
            for one in (ours, *(worker.link for worker in self._workers.values())):
                one.close()
            self._selector.close()
            self._config.pluginmanager.unregister(self)
            _run_worker(session, self._groups, theirs, folder, first)
        theirs.close()
        worker = _Worker(number, pid, ours, folder, [])
        self._workers[number] = worker
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _listen(self, session: pytest.Session, worker: _Worker) -> None:
        lost = False
        while not lost and not worker.link.closed and worker.link.poll():
            try:
                kind, *content = worker.link.recv()
            except (EOFError, ConnectionError, pickle.UnpicklingError):
                lost = True
            else:
                getattr(self, f"_on_{kind}")(session, worker, *content)
        if lost:  # outside the handler: a worker started there would show its exception in every traceback
            self._lost(session, worker)

    def _on_take(self, session: pytest.Session, worker: _Worker) -> None:
        unit = self._units.popleft() if self._units and not self._stopped else None
        if unit is not None:
            worker.units = [*worker.units[-1:], unit]
        with contextlib.suppress(OSError):
            worker.link.send(("unit", unit))

    def _on_start(self, session: pytest.Session, worker: _Worker, name: str, location: Any, limit_s: float) -> None:
        worker.running, worker.since, worker.limit_s = (name, location), time.monotonic(), limit_s
        worker.processor_s = _processor_s(worker.pid)
        self._begun += 1
        # The total is not known before the last module is taken; the progress shown is an estimate.
        taken = max(len(self._groups) - len(self._units) - len(self._workers), 1)
        session.testscollected = max(self._begun, self._begun * len(self._groups) // taken if self._units else 0)
        if self._config.get_verbosity() > 0:
            self._config.hook.pytest_runtest_logstart(nodeid=name, location=location)

    def _on_report(self, session: pytest.Session, worker: _Worker, data: dict[str, Any]) -> None:
        report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
        if isinstance(report, pytest.TestReport):
            self._config.hook.pytest_runtest_logreport(report=report)
        else:
            self._config.hook.pytest_collectreport(report=report)

    def _on_finish(self, session: pytest.Session, worker: _Worker, name: str, location: Any) -> None:
        worker.running = None
        worker.finished.add(name)
        self._config.hook.pytest_runtest_logfinish(nodeid=name, location=location)

    def _on_deselected(self, session: pytest.Session, worker: _Worker, items: list[str]) -> None:
        self._config.hook.pytest_deselected(items=[SimpleNamespace(nodeid=one) for one in items])

    def _on_end(self, session: pytest.Session, worker: _Worker) -> None:
        self._forget(worker)

    def _lost(self, session: pytest.Session, worker: _Worker, limit_s: float | None = None) -> None:
        """Report the test during which a worker died or was killed, and start another worker for the rest."""
        status = self._forget(worker)
        name, location = worker.running or (f"(worker {worker.number}, outside of tests)", ("", None, ""))
        why = f"the worker ended with {status} (a signal if negative)"
        text = f"{name}: " + (why if limit_s is None else f"not done after its limit of {limit_s:.0f} s")
        report = pytest.TestReport(
            nodeid=name, location=location, keywords={}, outcome="failed", longrepr=text, when="call",
            sections=[*_last_words(worker.folder), *logs_since(worker.folder, limit_s or limits.DEFAULT_S)],
        )  # fmt: skip
        self._config.hook.pytest_runtest_logreport(report=report)
        if worker.running is None:  # it died outside of tests: it might again
            return
        gone = frozenset({*worker.finished, name})
        for unit in reversed(worker.units):
            self._units.appendleft(Unit(unit.number, unit.skipped | gone))
        if not self._stopped:
            self._start(session)

    def _end_overdue(self, session: pytest.Session) -> None:
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.running is None or not limits.is_over(
                worker.limit_s, now - worker.since, _processor_s(worker.pid) - worker.processor_s
            ):
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGUSR1)  # faulthandler writes the stacks, whatever holds Python
                _wait_written(worker.folder / _FAULT_FILE)
                os.kill(worker.pid, signal.SIGKILL)
            self._lost(session, worker, worker.limit_s)

    def _stop(self) -> None:
        self._stopped = True
        self._units.clear()
        for worker in self._workers.values():
            with contextlib.suppress(OSError):
                worker.link.send(("stop", None))

    def _forget(self, worker: _Worker) -> int:
        self._selector.unregister(worker.link)
        worker.link.close()
        del self._workers[worker.number]
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])

    def _end_all(self) -> None:
        deadline = time.monotonic() + _END_S
        for worker in list(self._workers.values()):
            while time.monotonic() < deadline and os.waitpid(worker.pid, os.WNOHANG) == (0, 0):
                time.sleep(0.05)  # waitpid takes no time limit
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        self._workers.clear()


def _processor_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds; 0 if it has ended."""
    with contextlib.suppress(OSError):
        ticks = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return 0.0


class _Reporter:
    """The plugin of a worker: sends what happens to the first process."""

    def __init__(self, config: pytest.Config, link: Connection) -> None:
        self._config = config
        self._link = link

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._send(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._send(report)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._link.send(("deselected", [item.nodeid for item in items]))

    def _send(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._link.send(("report", data))


class _Items:
    """The items of the units that this worker takes, in order; it asks for the next unit when it needs an item."""

    def __init__(self, session: pytest.Session, groups: Groups, link: Connection) -> None:
        self._session = session
        self._groups = groups
        self._link = link
        self._left: deque[pytest.Item] = deque()

    def next(self) -> pytest.Item | None:
        """Return the next item; None after the last one, or if the first process stops the run."""
        while not self._left:
            self._link.send(("take",))
            kind, unit = self._link.recv()
            if kind == "stop" or unit is None:
                return None
            self._left.extend(item for item in self._collected(unit) if item.nodeid not in unit.skipped)
        return self._left.popleft()

    def stopped(self) -> bool:
        """Return True if the first process has stopped the run."""
        return self._link.poll()

    def _collected(self, unit: Unit) -> list[pytest.Item]:
        gc.disable()
        try:
            items = [item for node in self._groups[unit.number] for item in self._session.genitems(node)]
        finally:
            gc.freeze()
            gc.enable()
        config = self._session.config
        config.hook.pytest_collection_modifyitems(session=self._session, config=config, items=items)
        return items


def _run_worker(
    session: pytest.Session,
    groups: Groups,
    link: Connection,
    folder: Path,
    first: int,
) -> NoReturn:
    """Run items in this forked process until none is left; ends the process without freeing what it imported."""
    status = 1
    output = (folder / _OUTPUT).open("ab", buffering=0)
    try:
        launch.tie(first)
        _redirect(session.config, output, folder)
        _run_items(session, groups, link)
        link.send(("end",))
        status = 0
    except BaseException:
        output.write(traceback.format_exc().encode())
        raise
    finally:
        if "COVERAGE_PROCESS_START" not in os.environ:
            atexit._run_exitfuncs()
            os._exit(status)
    raise SystemExit(status)


def _redirect(config: pytest.Config, output: IO[bytes], folder: Path) -> None:
    """Give this process its own output, temporary folder and fault handler: the first process keeps its own."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    if capture._method != "no":
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    capture.start_global_capturing()
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    stacks = (folder / _FAULT_FILE).open("wb", buffering=0)
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    config.pluginmanager.unregister(name="terminalreporter")


def _run_items(session: pytest.Session, groups: Groups, link: Connection) -> None:
    config = session.config
    config.pluginmanager.register(_Reporter(config, link), "pool_reporter")
    items = _Items(session, groups, link)
    try:
        item = items.next()
        while item is not None and not items.stopped():
            following = items.next()
            link.send(("start", item.nodeid, item.location, limits.of(item)))
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            link.send(("finish", item.nodeid, item.location))
            item = following
    finally:
        session._setupstate.teardown_exact(None)  # after a stop or an interrupt, servers still run


def _wait_written(file: Path) -> None:
    """Wait until the stacks are written: no more for 0.2 s."""
    deadline = time.monotonic() + _DUMP_S
    size = -1
    while time.monotonic() < deadline and (size <= 0 or file.stat().st_size != size):
        size = file.stat().st_size
        time.sleep(0.2)  # faulthandler does not tell when it is done


def _last_words(folder: Path) -> list[tuple[str, str]]:
    stacks = "\n".join(_lines(folder / _FAULT_FILE)[:_LAST_LINES])  # the most recent calls come first
    return [(name, text) for name, text in ((_FAULT_FILE, stacks), (_OUTPUT, _end_of(folder / _OUTPUT))) if text]


def logs_since(folder: Path, seconds: float) -> list[tuple[str, str]]:
    """Return name and last lines of each log below `folder` that was written to in the last `seconds`."""
    found = []
    for file in sorted(folder.rglob("*.log")):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime >= time.time() - seconds and (text := _end_of(file)):
                found.append((f"log: {file.relative_to(folder)}", text))
    return found


def _end_of(file: Path) -> str:
    return "\n".join(_lines(file)[-_LAST_LINES:])


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
