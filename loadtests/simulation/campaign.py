"""Many seeds: jobs with a database each, and a child process for each seed.

A child is a copy of its job, with its modules and its warm sessions, and exits when its run is over: nothing of a run
reaches the next one.
"""

import contextlib
import multiprocessing
import os
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

import msgspec

from engine.delivery.outcome import classify
from engine.mail.replies import Answer, Phase, Reply
from loadtests.simulation import clocks, determinism, mutations
from loadtests.simulation.postgres import JobDatabase, SimulationServer
from loadtests.simulation.run import RunResult, run_seed
from mta.smtp.client.tls import certificate_verifier

CHILD_TIMEOUT_S: Final = 60.0
_packer = msgspec.msgpack.Encoder()
_unpacker = msgspec.msgpack.Decoder(RunResult)


class Task(msgspec.Struct, frozen=True):
    """A run to make: its seed, and the mutation of the service, if any."""

    seed: int
    mutation: str = ""


def results(
    running: SimulationServer, tasks: Sequence[Task], jobs: int, *, shows: bool = False
) -> Generator[tuple[Task, RunResult], None, None]:
    """Yield the results of runs as they come, from `jobs` processes. Close the generator to end them.

    Only failed runs have their schedules, unless `shows`.
    """
    tasks_of = [tasks[number::jobs] for number in range(jobs)]
    started: list[tuple[int, Connection, Iterator[Task]]] = []
    state = Path(tempfile.mkdtemp(prefix="waybill-sim-state-"))
    for number, own in enumerate(tasks_of):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            ours.close()
            os.setpgrp()  # so that its present run ends with it
            _exit_after(partial(_job, running, f"job{number}", own, state, theirs, shows=shows))
        theirs.close()
        started.append((pid, ours, iter(own)))
    try:
        yield from _received({ours: own for _, ours, own in started})
    finally:
        for pid, ours, _ in started:
            ours.close()
            _end(pid)
        shutil.rmtree(state, ignore_errors=True)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _received(sources: dict[Connection, Iterator[Task]]) -> Iterator[tuple[Task, RunResult]]:
    while sources:
        for source in wait(list(sources)):
            assert isinstance(source, Connection)
            try:
                found = _unpacker.decode(source.recv_bytes())
                yield next(sources[source]), found
            except EOFError:
                if next(sources[source], None) is not None:
                    raise RuntimeError("a job of the simulation ended early") from None
                del sources[source]


def _job(
    running: SimulationServer, name: str, tasks: Sequence[Task], state: Path, results_to: Connection, *, shows: bool
) -> None:
    """Make runs one after the other, and send their results."""
    determinism.prepare_statements()
    job = JobDatabase(running, name)
    _load_late()
    _run(Task(0), job, state / name)  # warms up: later runs find sessions, and replies about the schema
    for task in tasks:
        found = _run(task, job, state / name)
        if not found.violations and not shows:
            found = msgspec.structs.replace(found, schedule=[])
        results_to.send_bytes(_packer.encode(found))


def _load_late() -> None:
    """Load what the service loads at its first use, so that each run has it."""
    certificate_verifier()
    for code in ("550 5.1.1", "550 5.7.1", "451 4.3.0", "452 4.2.2", "421 4.3.2"):
        classify(Answer(Phase.RCPT, Reply(int(code[:3]), f"{code} of the simulation", code[4:])))


def _run(task: Task, job: JobDatabase, folder: Path) -> RunResult:
    """Make one run in a child process."""
    job.reset()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _exit_after(lambda: _child(task, job, folder, writer))
    os.close(writer)
    found = _read(reader, pid)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if status or not found:
        raise RuntimeError(f"the run of seed {task.seed} itself failed; its error is above")
    result = _unpacker.decode(found)
    job.keep(result.most)
    job.known |= result.learned
    return msgspec.structs.replace(result, most={}, learned={})


def _read(reader: int, pid: int) -> bytes:
    """Return what a child writes; kill it if it takes too long."""
    ends, found = clocks.real_monotonic() + CHILD_TIMEOUT_S, b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, ends - clocks.real_monotonic()))
        if not ready:
            print(f"a run takes more than {CHILD_TIMEOUT_S:.0f} s of real time", file=sys.stderr)
            os.kill(pid, signal.SIGKILL)
            return b""
        octets = os.read(reader, 1 << 20)
        if not octets:
            return found
        found += octets


def _child(task: Task, job: JobDatabase, folder: Path, writer: int) -> None:
    if task.mutation:
        mutations.apply(task.mutation)
    result = run_seed(task.seed, job, folder)
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(_packer.encode(result))


def _exit_after(work: Callable[[], None]) -> None:
    """Do the work of a forked process, and exit without any clean-up of its parent's."""
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - of a process of its own
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
