"""Generic supervision of child processes: start, watch, restart with backoff, stop in order.

Nothing here is specific to Waybill; `ops.host.up` defines the processes. The output of a child goes to its log file;
only restarts, exits and kills are reported, through the `say` callback.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from engine.store.socket_activation import READY_FD
from ops.host.fork_server import Request
from ops.host.forks import ForkedChild, ForkServer
from ops.host.state import bound_log, tail

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 10.0
SETTLED_AFTER_S = 30.0  # after this uptime, the next exit restarts the backoff from FIRST_BACKOFF_S
START_PATIENCE_S = 5.0  # a child that was never ready may exit for this long before its start fails
READY_POLL_S = 0.02
LOG_CHECK_S = 30.0
LOG_LIMIT_BYTES = 64 * 1024 * 1024
_AFTER_LAST_SIGNAL_S = 5.0


class StartFailed(RuntimeError):  # noqa: N818 - named for what happened
    """A process did not become ready; the text includes the end of its log."""


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """The command, environment, readiness check and stop signals of one supervised process."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path | None  # None: its output goes where that of this process goes
    cwd: Path = Path("/")
    before: Callable[[], None] | None = None  # run in a thread before each start
    ready: Callable[[int], Awaitable[bool]] | None = None  # called with the pid; None: ready as soon as it has started
    ended: Callable[[int], None] | None = None  # called with the pid after the process has exited
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None  # runs while it is ready, until it exits
    stop_signal: signal.Signals = signal.SIGTERM
    last_signal: signal.Signals = signal.SIGKILL
    grace_s: float = 20.0
    announces: int = 0  # octets on its readiness pipe (`engine.store.socket_activation`) to await before `ready`
    overlaps: bool = False  # a replacement may run in parallel during `renew`
    inherits: tuple[int, ...] = ()  # file descriptors that it inherits
    fork: Request | None = None  # start it as this fork of the supervisor's fork server instead of `argv`


Process = asyncio.subprocess.Process | ForkedChild


@dataclass(frozen=True, kw_only=True)
class ChildStatus:
    """The current state of one supervised process."""

    name: str
    pid: int | None  # None: not running
    ready: bool
    since: float | None  # Unix time of its last start, in seconds
    deaths: int  # restarts after it exited unexpectedly
    renewals: int  # replacements by `renew`


@dataclass
class _Child:
    spec: ProcessSpec
    stopping: asyncio.Event
    process: Process | None = None
    keeper: asyncio.Task[None] | None = None
    first_start: float = 0.0
    began_at: float = 0.0
    restarts: int = 0
    renewals: int = 0
    was_ready: bool = False
    is_ready: bool = False
    failed: bool = False  # exited repeatedly without ever being ready


class Supervisor:
    """Runs child processes until they are stopped; use it within one event loop in the main thread.

    As a context manager it kills the remaining children on exit.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.forks: ForkServer | None = None  # starts the processes whose specification has `fork`
        self._children: dict[str, _Child] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill_all()

    def start(self, spec: ProcessSpec) -> None:
        """Start the process and restart it whenever it exits; raises ValueError if the name is in use."""
        if spec.name in self._children:
            raise ValueError(f"{spec.name} runs already")
        self._begin(spec.name, spec)

    async def renew(self, name: str, timeout_s: float = 60.0) -> None:
        """Replace a process by a new one with the same specification; return when the new one is ready.

        If the specification has `overlaps`, the old process is stopped only after the new one is ready, and keeps
        running if the new one fails to start; otherwise the old process is stopped first. Raises StartFailed, KeyError.
        """
        old = self._children[name]
        if old.spec.overlaps:
            await self._replace(name, old, timeout_s)
        else:
            await self._stop(old)
            fresh = self._begin(name, old.spec)
            fresh.restarts, fresh.renewals = old.restarts, old.renewals + 1
            await self.wait_ready(name, timeout_s=timeout_s)

    async def wait_ready(self, *names: str, timeout_s: float = 60.0) -> None:
        """Wait until the named children (default: all) have been ready; raises StartFailed if one fails to start.

        `timeout_s` counts from each child's first start.
        """
        waiting = [self._children[name] for name in names or self._children]
        while waiting := [child for child in waiting if not child.was_ready]:
            for child in waiting:
                _refuse_hopeless(child, timeout_s)
            await asyncio.sleep(READY_POLL_S)

    async def run(self, spec: ProcessSpec) -> AsyncIterator[bytes]:
        """Run a process to its end and yield the lines that it prints; its errors go to its log."""
        reading, writing = os.pipe()
        lines = asyncio.StreamReader()
        with os.fdopen(reading, "rb") as source, _output(spec) as errors:
            try:
                process = await _started(spec, self.forks, (writing, errors), None)
            finally:
                os.close(writing)
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), source)
            try:
                async for line in lines:
                    yield line
                await process.wait()
            finally:
                _signal(process, spec.last_signal)
                transport.close()

    async def stop(self, *names: str) -> None:
        """Stop the named children in parallel: the stop signal, the grace period, then the last signal."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                if name in self._children:
                    group.create_task(self._stop(self._children[name]))

    async def kill_all(self) -> None:
        """Send every child its last signal at once, in reverse order of start, and wait until all have exited."""
        for child in reversed(self._children.values()):
            child.stopping.set()
            _signal(child.process, child.spec.last_signal)
        for child in reversed(self._children.values()):
            await _gone(child.process, _AFTER_LAST_SIGNAL_S)
            await _cancelled(child.keeper)

    def children(self) -> list[ChildStatus]:
        """Return the state of every child in start order; a child that is being replaced appears twice."""
        return [_child_status(name, child) for name, child in self._children.items()]

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running children, by name."""
        return {
            name: child.process.pid
            for name, child in self._children.items()
            if child.process is not None and child.process.returncode is None
        }

    def restarts(self, name: str) -> int:
        """Return how many times the named child was restarted; raises KeyError."""
        return self._children[name].restarts

    def _begin(self, key: str, spec: ProcessSpec) -> _Child:
        child = self._children[key] = _Child(spec, asyncio.Event(), first_start=time.monotonic())
        child.keeper = asyncio.create_task(self._keep(child), name=f"keep {key}")
        return child

    async def _replace(self, name: str, old: _Child, timeout_s: float) -> None:
        """Start a second process in parallel and stop the old one when it is ready; rename both during the overlap."""
        coming, leaving = f"{name} (coming)", f"{name} (leaving)"
        fresh = self._begin(coming, old.spec)
        try:
            await self.wait_ready(coming, timeout_s=timeout_s)
        except BaseException:
            await self._stop(fresh)
            del self._children[coming]
            raise
        fresh.restarts, fresh.renewals = old.restarts, old.renewals + 1
        order = [leaving if key == coming else key for key in self._children]
        self._children |= {leaving: old, name: fresh}
        self._children = {key: self._children[key] for key in order}
        await self._stop(old)
        del self._children[leaving]

    async def _keep(self, child: _Child) -> None:
        """Run the child, and restart it after each exit with a pause that doubles while it exits early."""
        pause_s = FIRST_BACKOFF_S
        while not child.stopping.is_set():
            began = time.monotonic()
            code = await self._live(child)
            if child.stopping.is_set():
                return
            lived_s = time.monotonic() - began
            pause_s = FIRST_BACKOFF_S if lived_s >= SETTLED_AFTER_S else pause_s
            if child.was_ready:
                where = "" if child.spec.log is None else f" (log: {child.spec.log})"
                self._say(f"{child.spec.name} {_ending(code)}; starting it again in {pause_s:.1f} s{where}")
            elif time.monotonic() > child.first_start + START_PATIENCE_S:
                child.failed = True
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_BACKOFF_S)
            child.restarts += 1

    async def _live(self, child: _Child) -> int:
        """Start the child once, wait until it exits, and return its exit status (negative: killed by that signal)."""
        spec = child.spec
        try:
            if spec.before is not None:
                await asyncio.to_thread(spec.before)
            if child.stopping.is_set():
                return 0
            child.process, announced = await _spawn(spec, self.forks)
            process, child.began_at = child.process, time.time()
        except Exception as error:  # noqa: BLE001 - a failed start is logged and retried like an exit
            _note(spec.log, f"can't start {spec.name}: {error}")
            return 127
        if child.stopping.is_set():  # stopped while it was being started
            _signal(process, spec.stop_signal)
        with announced:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch(child, process.pid, announced))
                code = await process.wait()
                watch.cancel()
        child.is_ready = False
        if spec.ended is not None:
            spec.ended(process.pid)
        return code

    async def _watch(self, child: _Child, pid: int, announced: "_Announcements") -> None:
        """Record when the process becomes ready, then limit the size of its log."""
        await announced.reach(child.spec.announces)
        while True:
            if child.spec.ready is None or await _probe(child.spec.ready, pid):
                break
            await asyncio.sleep(READY_POLL_S)
        if child.was_ready:
            self._say(f"{child.spec.name} runs again")
        child.was_ready = child.is_ready = True
        async with asyncio.TaskGroup() as group:
            if child.spec.log is not None:
                group.create_task(_bound(child.spec.log))
            if child.spec.beside is not None:
                group.create_task(_run_beside(child.spec.beside(), child.spec))

    async def _stop(self, child: _Child) -> None:
        child.stopping.set()
        spec = child.spec
        _signal(child.process, spec.stop_signal)
        if not await _gone(child.process, spec.grace_s):
            self._say(f"{spec.name} did not end within {spec.grace_s:.0f} s; ending it by force")
            _signal(child.process, spec.last_signal)
            if not await _gone(child.process, _AFTER_LAST_SIGNAL_S):
                _signal(child.process, signal.SIGKILL)
                await _gone(child.process, _AFTER_LAST_SIGNAL_S)
        await _cancelled(child.keeper)


async def _run_beside(work: Coroutine[Any, Any, None], spec: ProcessSpec) -> None:
    """Run the work; its failure is logged and never ends the supervision of the process."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - whatever it was, the process goes on
        _note(spec.log, f"the work beside {spec.name} failed: {error!r}")


async def _bound(log: Path) -> None:
    """Limit the size of a log until cancelled."""
    while True:
        await asyncio.sleep(LOG_CHECK_S)
        await asyncio.to_thread(bound_log, log, LOG_LIMIT_BYTES)


class _Announcements:
    """The read end of a child's readiness pipe; the child writes one octet for each of its parts that is ready."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._count = 0
        self._more = asyncio.Event()
        os.set_blocking(reading, False)
        asyncio.get_running_loop().add_reader(reading, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)

    async def reach(self, count: int) -> None:
        """Wait until `count` octets have arrived."""
        while self._count < count:
            self._more.clear()
            await self._more.wait()

    def _read(self) -> None:
        try:
            octets = os.read(self._reading, 256)
        except BlockingIOError:
            return
        self._count += len(octets)
        self._more.set()
        if not octets:  # end of file: no process holds the write end any more
            asyncio.get_running_loop().remove_reader(self._reading)


def _child_status(name: str, child: _Child) -> ChildStatus:
    process = child.process
    lives = process is not None and process.returncode is None
    return ChildStatus(
        name=name,
        pid=process.pid if process is not None and lives else None,
        ready=child.is_ready and lives,
        since=child.began_at if lives else None,
        deaths=child.restarts,
        renewals=child.renewals,
    )


def _refuse_hopeless(child: _Child, timeout_s: float) -> None:
    spec = child.spec
    if child.failed:
        what = "keeps ending at its start"
    elif time.monotonic() > child.first_start + timeout_s:
        what = f"is not ready after {timeout_s:.0f} s"
    else:
        return
    raise StartFailed(f"{spec.name} {what}. {last_words(spec)}")


def last_words(spec: ProcessSpec) -> str:
    """Return the end of the process's log, introduced, for the message of a failed start."""
    return "Its log lines stand above." if spec.log is None else f"The end of {spec.log}:\n{tail(spec.log)}"


@contextlib.contextmanager
def _output(spec: ProcessSpec) -> Iterator[int]:
    """Yield the descriptor for the output of a process: its log file, or standard output."""
    if spec.log is None:
        yield sys.stdout.fileno()
        return
    with spec.log.open("ab") as log:
        yield log.fileno()


async def _spawn(spec: ProcessSpec, forks: ForkServer | None) -> tuple[Process, _Announcements]:
    """Start the process in a new session, so that Ctrl-C in the terminal reaches only the supervisor."""
    if spec.log is not None:
        bound_log(spec.log)
    reading, writing = os.pipe()
    try:
        with _output(spec) as output:
            process = await _started(spec, forks, (output, output), writing if spec.announces else None)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return process, _Announcements(reading)


async def _started(spec: ProcessSpec, forks: ForkServer | None, output: tuple[int, int], ready: int | None) -> Process:
    """Start the process with standard output and error to `output`, and the readiness pipe `ready`."""
    announces = [] if ready is None else [ready]
    if spec.fork is not None:
        assert forks is not None
        request = msgspec.structs.replace(spec.fork, environ=dict(spec.env), announces=bool(announces))
        return await forks.fork(request, [*output, *spec.inherits, *announces])
    handed = {READY_FD: str(ready)} if announces else {}
    return await asyncio.create_subprocess_exec(
        *spec.argv, env={**spec.env, **handed}, cwd=spec.cwd, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=output[0], stderr=output[1], pass_fds=(*spec.inherits, *announces),
    )  # fmt: skip


async def _probe(ready: Callable[[int], Awaitable[bool]], pid: int) -> bool:
    """Return the result of the readiness check; False if it raises OSError or takes more than 5 s."""
    try:
        async with asyncio.timeout(5.0):
            return await ready(pid)
    except (OSError, TimeoutError):
        return False


def _signal(process: Process | None, number: signal.Signals) -> None:
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


async def _gone(process: Process | None, timeout_s: float) -> bool:
    if process is None:
        return True
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait({task})


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _note(log: Path | None, text: str) -> None:
    if log is None:
        print(text, flush=True)
        return
    with contextlib.suppress(OSError), log.open("a") as file:
        file.write(text + "\n")
