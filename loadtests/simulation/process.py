"""A simulated process: what it owns, and how it is killed."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

from loadtests.simulation.world import World

PROCESS: "ContextVar[Process | None]" = ContextVar("simulated process", default=None)  # of the running callback


class Severed(Protocol):
    """A connection of a process, which ends with it."""

    def sever(self) -> None:
        """Cut the connection: the process was killed."""
        ...


class Process:
    """A process from its start to its kill. Its tasks, timers and connections know it by a context variable."""

    def __init__(self, world: World, name: str, *, kill_at_turn: int = 0) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.turns = 0
        self.kill_at_turn = kill_at_turn  # 0: never
        self.frozen_until = 0.0
        self.may_be_killed: Callable[[], bool] = lambda: True
        self.connections: dict[Severed, None] = {}
        self.on_kill: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine in this process."""
        task = asyncio.get_running_loop().create_task(work, context=self.context.copy())
        self.keep(task)
        return task

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keep a task: once collected, its coroutine would run its `finally` blocks, though the process was killed."""
        self._tasks.append(task)

    def takes_turn(self) -> bool:
        """Return True if its next callback may run; kill the process if its turn has come."""
        if not self.alive:
            return False
        self.turns += 1
        if self.turns == self.kill_at_turn and self.may_be_killed():
            self.kill()
            return False
        return True

    def freeze(self, seconds: float) -> None:
        """Stop it for `seconds`, as SIGSTOP or a stalled host does."""
        if self.alive:
            self.frozen_until = self.world.now + seconds
            self.world.note(self.name, f"frozen for {seconds:.3f} s")

    def kill(self) -> None:
        """End it like SIGKILL: nothing of it runs any more, and its connections break."""
        if not self.alive:
            return
        self.alive = False
        self.world.note(self.name, f"killed at turn {self.turns}")
        for connection in list(self.connections):
            connection.sever()
        self.connections.clear()
        for call in self.on_kill:
            call()


def current() -> Process | None:
    """Return the process of the running callback."""
    return PROCESS.get()


def here() -> Context:
    """Return a context for callbacks on behalf of the present process."""
    return copy_context()
