"""An asyncio event loop in simulated time, which knows the simulated process of each callback.

A callback of a process that was killed never runs, nor does any of its `finally` blocks: exactly what SIGKILL leaves.
Callbacks run in the order in which they became ready, as asyncio promises; what differs between seeds is the order and
the time of the events that make them ready.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from itertools import count
from typing import Any

from loadtests.simulation.network import Network
from loadtests.simulation.process import PROCESS
from loadtests.simulation.world import TURN_S, World

_EXECUTOR_S = (0.0002, 0.003)  # that a call in a thread takes
_numbers = count(1)


class SimulatedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*args, **options)
        process = PROCESS.get()
        if process is not None:
            process.keep(self)

    def __hash__(self) -> int:
        return self._number


class SimulatedFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = next(_numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one run; `network` and `databases` make its connections."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._rng = world.rng("loop")
        self.network: Network
        self.connect_database: Callable[[Callable[[], asyncio.Protocol]], asyncio.Transport]
        self.set_task_factory(_task)  # type: ignore[arg-type]
        self.set_exception_handler(self._unhandled)

    # -- what asyncio asks -----------------------------------------------------------------------

    def time(self) -> float:
        """Return the simulated time."""
        return self._world.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call a function at a simulated time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.at(when, partial(self._make_ready, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call a function after `delay` seconds."""
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future."""
        return SimulatedFuture(loop=self)

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Run a function at once; its result arrives later."""
        future = self.create_future()
        try:
            answer: Callable[[], None] = partial(future.set_result, func(*args))
        except Exception as error:  # noqa: BLE001 - the caller's
            answer = partial(future.set_exception, error)
        self.call_later(self._rng.uniform(*_EXECUTOR_S), _unless_done, future, answer)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect over the simulated network."""
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Listen on the simulated network."""
        return self.network.listen(protocol_factory, host, port)

    async def create_unix_connection(self, protocol_factory: Any, _path: Any = None, **_: Any) -> Any:  # type: ignore[override]
        """Connect to PostgreSQL: nothing else here has a unix socket."""
        transport = self.connect_database(protocol_factory)
        return transport, transport.get_protocol()

    def _write_to_self(self) -> None:
        pass

    # -- turns ---------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one callback, or the next event if none is ready."""
        world = self._world
        world.fire_due()
        if not self._ready:  # type: ignore[attr-defined]
            world.advance()
            return
        handle = self._ready.popleft()  # type: ignore[attr-defined]
        if handle._cancelled:  # noqa: SLF001 - as BaseEventLoop does
            return
        process = handle._context.get(PROCESS)  # noqa: SLF001
        if process is not None:
            if process.frozen_until > world.now:
                world.at(process.frozen_until, partial(self._make_ready, handle))
                return
            if not process.takes_turn():
                return
        world.now += TURN_S
        handle._run()  # noqa: SLF001

    def _make_ready(self, handle: asyncio.Handle) -> None:
        if not handle._cancelled:  # noqa: SLF001
            self._ready.append(handle)  # type: ignore[attr-defined]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._world.note("loop", f"unhandled: {context['message']} {error!r}")


def _unless_done(future: "asyncio.Future[Any]", answer: Callable[[], None]) -> None:
    if not future.done():
        answer()


def _task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], context: Context | None = None
) -> SimulatedTask:
    return SimulatedTask(coro, loop=loop) if context is None else SimulatedTask(coro, loop=loop, context=context)
