"""Starts the processes of the simulated service, and starts those again that were killed or have failed."""

import asyncio
import random

from engine.store.database_errors import DatabaseUnavailable
from engine.store.migrate import MigrationError
from loadtests.simulation.faults import Faults
from loadtests.simulation.process import Process
from loadtests.simulation.service import ROLES, ApiProcess, MtaProcess, Role, Surroundings


class SimulatedSupervisor:
    """The processes of a run, by name."""

    def __init__(self, around: Surroundings, faults: Faults) -> None:
        self._around = around
        self._faults = faults
        self.roles: dict[str, Role] = {}
        self.failures: list[str] = []
        self._ended = False

    async def run(self) -> None:
        """Keep all processes running until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name in ROLES:
                tasks.create_task(self._keep(name))

    def ready_api(self, rng: random.Random) -> ApiProcess | None:
        """Return an API process that takes requests, or None."""
        ready = [one for one in self.roles.values() if isinstance(one, ApiProcess) and one.is_ready]
        return rng.choice(ready) if ready else None

    def mta_of(self, process: Process) -> MtaProcess | None:
        """Return the mta process of this incarnation, if it is the present one."""
        return next(
            (one for one in self.roles.values() if isinstance(one, MtaProcess) and one.process is process), None
        )

    async def _keep(self, name: str) -> None:
        world = self._around.world
        while True:
            process = Process(world, name, kill_at_turn=self._faults.kill_at_turn(name))
            process.may_be_killed = lambda: not self._faults.over
            role = self.roles[name] = ROLES[name](self._around, process)
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            process.on_kill.append(lambda ended=ended: ended.done() or ended.set_result(None))  # type: ignore[misc]
            work = process.start(role.run())
            await asyncio.wait((work, ended), return_when=asyncio.FIRST_COMPLETED)
            if process.alive:
                error = None if work.cancelled() else work.exception()
                world.note(name, f"ended by itself: {_said(error)}")
                if role.is_started or not isinstance(error, DatabaseUnavailable | MigrationError):
                    self.failures.append(f"{name} ended by itself: {_said(error)}")
                process.kill()
            await asyncio.sleep(self._faults.restart_after_s())


def _said(error: BaseException | None) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_said(one) for one in error.exceptions)
    return repr(error)
