"""Take time and chance from the world: everything in this process that would differ between two runs of one seed.

Called in a child process that runs one seed and exits, so nothing is ever put back.
"""

import gc
import logging
import os
import random
import shutil
import sys
from collections.abc import MutableMapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final

import structlog

from engine.base import clock, ids
from engine.sending.emails import timing
from engine.store.deadlines import within
from engine.store.queries import REGISTRY, SessionFunction
from loadtests.simulation import clocks
from loadtests.simulation.world import EPOCH, START, World
from mta.outbound.sites import pacer, remote_hosts, site
from ops.processes import worker

_MACHINE_TIME: Final = ("clock_timestamp()", "now()")
_EPOCH_S: Final = EPOCH.timestamp()
SHORT_PAUSE_S: Final = 0.2  # of servers that do not answer; otherwise runs would last for minutes


def install(world: World) -> None:
    """Give this process the time and the random numbers of a world."""
    random.seed(f"{world.seed} product")
    worker._random.seed(f"{world.seed} worker")  # noqa: SLF001 - made when its module was imported
    random.Random = _seeded(world)  # type: ignore[misc]
    octets = world.rng("urandom").randbytes
    os.urandom = octets
    random._urandom = octets  # type: ignore[attr-defined]  # noqa: SLF001 - what SystemRandom and `secrets` read
    ids._entropy.clear()  # noqa: SLF001 - drawn before
    _install_time(world)
    patched: Any = within
    patched.__hash__ = lambda self: hash(self.at)  # sets of them are iterated
    _install_logs(world)
    logging.disable(logging.CRITICAL)
    gc.disable()
    for module, name in ((site, "REST_S"), (remote_hosts, "REST_S"), (pacer, "PAUSE_S")):
        vars(module)[name] = SHORT_PAUSE_S
    vars(timing)["AT_ONCE_S"] = 0  # messages may be scheduled for the next second


def prepare_statements() -> None:
    """Let statements that name the machine's time read the simulated one, which the schema `clock` gives all others."""
    for one in REGISTRY:
        for function in _MACHINE_TIME:
            one.sql = one.sql.replace(f"pg_catalog.{function}", f"clock.{function}")


def forget_statements() -> None:
    """Forget which sessions have which functions: they are others in each run."""
    for one in REGISTRY:
        if isinstance(one, SessionFunction):
            one._replan_at.clear()  # noqa: SLF001


def _seeded(world: World) -> type[random.Random]:
    """Return a generator that takes its seed from the world where the caller gives none."""
    numbers = world.rng("generators")

    class SeededRandom(random.Random):
        def __init__(self, seed: Any = None) -> None:
            super().__init__(numbers.random() if seed is None else seed)

    return SeededRandom


def _install_logs(world: World) -> None:
    """Note the errors that the service logs in the schedule."""

    def noted(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
        error = event.get("exc_info")
        if error is True:
            error = sys.exc_info()[1]
        world.note("log", f"{event.get('event')}: {error!r}" if error else str(event.get("event")))
        raise structlog.DropEvent

    structlog.configure(
        processors=[noted], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.ReturnLoggerFactory(), cache_logger_on_first_use=False,
    )  # fmt: skip


def _install_time(world: World) -> None:
    class SimulatedDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return world.utc().astimezone(tz)

    clocks.follow(lambda: world.now, lambda: _EPOCH_S + world.now - START)
    vars(clock)["datetime"] = SimulatedDatetime


def state_folder(base: Path, seed: int) -> Path:
    """Return a folder for the state of one run's processes."""
    folder = base / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
