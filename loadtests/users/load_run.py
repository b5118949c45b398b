"""Record every request of a load test with its time and status, and every accepted recipient.

Locust's own statistics are rounded and not per recipient. The report computes percentiles per second from these files
and compares them with what the service stored and delivered. Times are wall-clock seconds, as in the sink's index.
"""

import csv
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import gevent
from locust import events
from locust.env import Environment

from loadtests.users.load_plan import LoadPlan, read_plan

REQUESTS: Final = "requests.csv"
ACCEPTED: Final = "accepted.csv"
TAILED: Final = "tailed.csv"
SPAN: Final = "span.csv"
_FLUSH_S: Final = 1.0
_FIELDS: Final = {
    REQUESTS: ("at", "name", "group", "ms", "status", "offered", "accepted"),
    ACCEPTED: ("at", "recipient", "group"),
    TAILED: ("at", "ms", "type"),
    SPAN: ("at", "what"),
}


class LoadRun:
    """The state of one load test in the Locust process (begun, messages offered, over) and its CSV files."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.offered = 0
        self.began = 0.0
        self.over = False
        self._numbers = itertools.count()
        self._files: dict[str, TextIO] = {}
        self._writers: dict[str, Any] = {}

    @property
    def waiting(self) -> bool:
        """Return True until all users have been spawned."""
        return self.began == 0.0

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the load began, 0 before."""
        return time.time() - self.began if self.began else 0.0

    def recipient(self, local: str = "m", domain: str | None = None) -> str:
        """Return a new recipient address; without `domain`, the domains of the plan are used in turn."""
        number = next(self._numbers)
        return f"{local}+{number}@{domain or f'load-{number % self.plan.domains}.test'}"

    def offer(self, count: int) -> bool:
        """Reserve `count` messages; return False, and end the load, when the maximum would be exceeded."""
        self.over = self.over or self.offered + count > self.plan.max_messages
        if not self.over:
            self.offered += count
        return not self.over

    def begin(self) -> None:
        """Record the start of the load; called when all users have been spawned."""
        self.began = time.time()
        self.write(SPAN, self.began, "began")

    def end(self) -> None:
        """End the load and record its end; users send nothing afterwards."""
        self.over = True
        self.write(SPAN, time.time(), "ended")

    def write(self, file: str, *cells: Any) -> None:
        """Append one row to a CSV file, with a header row if it is new."""
        writer = self._writers.get(file)
        if writer is None:
            stream = Path(self.plan.folder, file).open("w", newline="", encoding="utf-8")  # noqa: SIM115 - to the end
            self._files[file] = stream
            writer = self._writers[file] = csv.writer(stream)
            writer.writerow(_FIELDS[file])
        writer.writerow(cells)

    def flush(self) -> None:
        """Flush all CSV files."""
        for stream in self._files.values():
            stream.flush()


load_run: Final = LoadRun(read_plan())


def record_request(
    *, name: str, group: str, ms: float, status: str, offered: int = 0, accepted: Sequence[str] = ()
) -> None:
    """Record a request that ended; `accepted` are the recipients that the service accepted."""
    at = time.time()
    load_run.write(REQUESTS, f"{at:.4f}", name, group, f"{ms:.2f}", status, offered, len(accepted))
    for recipient in accepted:
        load_run.write(ACCEPTED, f"{at:.4f}", recipient, group)


@events.request.add_listener
def _record_locust_request(
    *,
    name: str,
    response_time: float,
    context: dict[str, Any],
    exception: object = None,
    response: Any = None,
    **_: Any,
) -> None:
    """Record a request that Locust reports; HTTP and SMTP users both report here."""
    status = str(getattr(response, "status_code", 0) or context.get("status") or "lost")
    record_request(
        name=name,
        group=context.get("group", "all"),
        ms=response_time,
        status=status if exception is None or status[:1] in "45l" else f"{status}!",
        offered=len(context.get("recipients", ())),
        accepted=context.get("accepted", ()),
    )


@events.spawning_complete.add_listener
def _begin(**_: Any) -> None:
    load_run.begin()


@events.test_start.add_listener
def _watch(environment: Environment, **_: Any) -> None:
    gevent.spawn(_run_load, environment)


@events.quitting.add_listener
def _close(**_: Any) -> None:
    load_run.flush()


def _run_load(environment: Environment) -> None:
    """Wait for the start, the end of sending and the cooling time, then stop Locust."""
    while load_run.waiting:
        gevent.sleep(0.02)
    while not load_run.over and load_run.elapsed_s < load_run.plan.seconds:
        gevent.sleep(0.1)
        if int(load_run.elapsed_s / _FLUSH_S) > int((load_run.elapsed_s - 0.1) / _FLUSH_S):
            load_run.flush()
    load_run.end()
    gevent.sleep(load_run.plan.cool_s)
    if environment.runner is not None:
        environment.runner.quit()
    load_run.flush()
