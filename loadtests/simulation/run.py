"""Run one seed: start the whole service and its surroundings, and check them once everything is final."""

import asyncio
from pathlib import Path
from typing import Final

from msgspec import Struct

from loadtests.simulation import determinism, invariants
from loadtests.simulation.backend import Backend
from loadtests.simulation.clients import Clients
from loadtests.simulation.database import Database
from loadtests.simulation.faults import Faults
from loadtests.simulation.loop import SimulatedLoop
from loadtests.simulation.mail_servers import MailServers
from loadtests.simulation.network import Network
from loadtests.simulation.postgres import JobDatabase
from loadtests.simulation.receivers import Receivers
from loadtests.simulation.redis import RedisServer
from loadtests.simulation.service import Surroundings, settings_for
from loadtests.simulation.supervisor import SimulatedSupervisor
from loadtests.simulation.world import START, Violation, World

DOMAINS: Final = {f"people{number}.test": f"10.0.0.{number + 1}" for number in range(5)}
LIMIT_S: Final = 90.0  # of simulated time, until which everything is final
_LOOK_S: Final = 0.5


class RunResult(Struct, frozen=True):
    """The result of one run."""

    seed: int
    digest: str
    violations: list[str]
    schedule: list[str]
    simulated_s: float
    most: dict[bytes, int]  # real sessions at once, by startup message
    learned: dict[bytes, bytes]  # replies about the schema, by request


def run_seed(seed: int, job: JobDatabase, state: Path) -> RunResult:
    """Run one seed in this process, whose clocks and random numbers are the world's from then on."""
    world = World(seed)
    determinism.install(world)
    database = Database(world, job.path, job.warm, job.monitor, job.known)
    loop = SimulatedLoop(world)
    asyncio.set_event_loop(loop)
    loop.network, loop.connect_database = Network(world), database.connect
    around = Surroundings(
        world, database, RedisServer(world), MailServers(world, loop.network, DOMAINS), Receivers(world), DOMAINS,
        settings_for(job.url, determinism.state_folder(state, seed)),
    )  # fmt: skip
    try:
        loop.run_until_complete(_SeedRun(around).run())
    except Violation as violation:
        world.violate(str(violation))
    free: list[Backend] = database.close()
    assert all(one.status == "I" for one in free)
    return RunResult(
        seed, world.digest, world.violations, world.schedule, world.now - START, database.most, database.learned
    )


class _SeedRun:
    """The parts of a run."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._faults = Faults(around.world)
        self._supervisor = SimulatedSupervisor(around, self._faults)
        self._clients = Clients(around.world, self._supervisor, list(DOMAINS))
        self._invariants = invariants.Watch(around, self._supervisor)

    async def run(self) -> None:
        """Run until everything is final, then check."""
        self._plan_faults()
        service = asyncio.ensure_future(self._supervisor.run())
        clients = asyncio.ensure_future(self._clients.run())
        world = self._around.world
        while not (clients.done() and self._faults.over and self._is_quiet()):
            await asyncio.sleep(_LOOK_S)
            if service.done():
                service.result()
            if world.now - START > LIMIT_S:
                world.violate(f"not final after {LIMIT_S:.0f} s: {self._invariants.left()}")
                break
        if clients.done():
            clients.result()
        self._invariants.check(self._clients.requests)

    def _is_quiet(self) -> bool:
        return not self._invariants.left()

    def _plan_faults(self) -> None:
        around, faults = self._around, self._faults
        world = around.world
        around.database.choose, around.database.is_cut = faults.statement, faults.is_cut
        around.mail.faulty, around.receivers.faulty = "servers" in faults.on, "receivers" in faults.on
        around.mail.slow = "slow" in faults.on
        around.redis.lossy = 0.15 if "redis" in faults.on else 0.0
        for at, seconds in faults.outages():
            world.at(at, lambda seconds=seconds: around.database.take_down(seconds))  # type: ignore[misc]
        for at, seconds in faults.redis_restarts():
            world.at(at, lambda seconds=seconds: around.redis.restart(seconds))  # type: ignore[misc]
        for at, seconds, name in faults.freezes():
            world.at(at, lambda seconds=seconds, name=name: self._freeze(name, seconds))  # type: ignore[misc]
        world.at(faults.ends_at, self._end_faults)

    def _freeze(self, name: str, seconds: float) -> None:
        role = self._supervisor.roles.get(name)
        if role is not None:
            role.process.freeze(seconds)

    def _end_faults(self) -> None:
        around = self._around
        around.world.note("faults", "over")
        around.mail.faulty = around.mail.slow = around.receivers.faulty = False
        around.redis.lossy = 0.0
