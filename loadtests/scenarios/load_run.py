"""The state of one load test in the Locust process, and the record of what it sent.

Locust keeps the times of all requests. The record has a line for each recipient, which `ops loadtest` compares with
what the service stored and delivered. Times are wall-clock seconds, as in the sink's index.
"""

import csv
import itertools
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import gevent
from locust import events
from locust.env import Environment
from locust.stats import PERCENTILES_TO_REPORT, StatsCSV

from loadtests.scenarios.load_plan import SENT, SENT_FIELDS, STATISTICS, LoadPlan, read_plan

_LOOK_S: Final = 0.02
_OVER_S: Final = 0.1  # how often a user looks at a load that is over


class LoadRun:
    """The progress of a load: begun, over, messages offered, and the file in which each send is recorded."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.began = 0.0
        self.over = False
        self._offered = 0
        self._numbers = itertools.count()
        self._file = Path(plan.folder, SENT).open("w", newline="", encoding="utf-8")  # noqa: SIM115 - until `close`
        self._rows = csv.writer(self._file)
        self._rows.writerow(SENT_FIELDS)

    @property
    def part(self) -> float:
        """Return the part of the sending time that has passed, 0 to 1."""
        return (time.time() - self.began) / self.plan.seconds if self.began else 0.0

    def recipient(self, local: str = "m", domain: str | None = None) -> str:
        """Return a new recipient address; without `domain`, the domains of the plan are used in turn."""
        number = next(self._numbers)
        return f"{local}+{number}@{domain or f'load-{number % self.plan.domains}.test'}"

    def ready(self) -> bool:
        """Wait for the start of the load; return False once it is over."""
        while not self.began:
            gevent.sleep(_LOOK_S)
        if self.over:
            gevent.sleep(_OVER_S)
        return not self.over

    def offer(self, count: int) -> bool:
        """Reserve `count` messages; return False, and end the load, when the maximum would be exceeded."""
        self.over = self.over or self._offered + count > self.plan.max_messages
        if not self.over:
            self._offered += count
        return not self.over

    def record(self, recipients: Sequence[str], taken: Collection[str], group: str, *, lost: bool) -> None:
        """Record a request for these recipients: the service accepted those `taken`; it is `lost` without an answer."""
        at = f"{time.time():.4f}"
        for one in recipients:
            self._rows.writerow((at, one, group, "accepted" if one in taken else "lost" if lost else "refused"))

    def run(self, environment: Environment) -> None:
        """Let users send for the time of the plan; readers stay for the cooling time, then Locust stops."""
        self.began = time.time()
        while not self.over and self.part < 1:
            gevent.sleep(_LOOK_S)
        self.over = True
        gevent.sleep(self.plan.cool_s)
        if environment.runner is not None:
            environment.runner.quit()

    def close(self, environment: Environment) -> None:
        """Close the record, and write Locust's statistics: the CSV files of its own lack the last second."""
        self._file.close()
        with Path(self.plan.folder, STATISTICS).open("w", newline="", encoding="utf-8") as file:
            StatsCSV(environment, PERCENTILES_TO_REPORT).requests_csv(csv.writer(file))


load_run: Final = LoadRun(read_plan())


@events.init.add_listener
def _prepare(environment: Environment, **_: object) -> None:
    """Begin the load when all users have been spawned."""
    environment.events.spawning_complete.add_listener(lambda **_: gevent.spawn(load_run.run, environment))
    environment.events.quit.add_listener(lambda **_: load_run.close(environment))
