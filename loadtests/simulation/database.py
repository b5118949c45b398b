"""Statements as steps of the schedule: the transport under the driver of PostgreSQL.

The driver stays whole. What it writes becomes a step at a later simulated time, which PostgreSQL runs to its end, or
until it waits for a lock: then other steps go on, and whoever frees the lock lets it finish. A fault loses the
connection before the step, or after it, when nobody knows whether it was committed; or it delays the reply.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from enum import Enum, auto
from typing import Any, Final

from loadtests.simulation.backend import Backend, Monitor, error_text, messages, of_simulation, query
from loadtests.simulation.process import Process, current, here
from loadtests.simulation.statements import Labels, about_schema, is_writing
from loadtests.simulation.world import World

_LATENCY_S: Final = (0.0002, 0.003)
_REPLY_S: Final = (0.0001, 0.001)
_UNIT_ENDS: Final = frozenset(b"SHQcfX")  # Sync, Flush, Query, CopyDone, CopyFail, Terminate
_FLUSH: Final = b"H\0\0\0\x04"
_PARSED: Final = b"1\0\0\0\x04"  # ParseComplete
_CANCEL: Final = (80_877_102).to_bytes(4, "big")
_TIME: Final = "%Y-%m-%d %H:%M:%S.%f+00"
_END_REQUEST: Final = b"S\0\0\0\x04"  # Sync, after whatever was begun
_CLEAN: Final = "DEALLOCATE ALL"


class StatementFault(Enum):
    """The ways in which a statement can fail on the network."""

    LOST_BEFORE = auto()
    LOST_AFTER = auto()


Chooser = Callable[[str, str, bool], tuple[float, float, StatementFault | None]]
Observer = Callable[["SimulatedSession", str, bytes, bytes], None]


def no_faults(_process: str, _label: str, _writes: bool) -> tuple[float, float, StatementFault | None]:  # noqa: FBT001
    """Choose no fault and no delay."""
    return 0.0, 0.0, None


class Database:
    """The sessions of one run, and the real ones behind them."""

    def __init__(
        self, world: World, path: str, warm: dict[bytes, list[Backend]], monitor: Monitor, known: dict[bytes, bytes]
    ) -> None:
        self.world = world
        self.monitor = monitor
        self.choose: Chooser = no_faults
        self.is_cut: Callable[[str], bool] = lambda _name: False
        self.observers: list[Observer] = []
        self.rng = world.rng("database")
        self.labels = Labels()
        self.down_until = 0.0
        self._path = path
        self._free = warm
        self.known = known  # replies about the schema alone, by request: the same in every run
        self.learned: dict[bytes, bytes] = {}
        self._blocked: list[SimulatedSession] = []
        self._sessions: dict[SimulatedSession, None] = {}
        self._numbers: dict[str, int] = {}
        self.most: dict[bytes, int] = {}
        self._used: dict[bytes, int] = {}

    def connect(self, factory: Callable[[], asyncio.Protocol]) -> "SimulatedSession":
        """Open a session. Raises ConnectionRefusedError while PostgreSQL is down."""
        process = current()
        name = "" if process is None else process.name
        if self.world.now < self.down_until or self.is_cut(name):
            raise ConnectionRefusedError(111, "PostgreSQL is down")
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        session = SimulatedSession(self, process, f"{name}/{number}")
        self._sessions[session] = None
        session.begin(factory())
        return session

    def take_down(self, seconds: float) -> None:
        """End all sessions, and refuse new ones for `seconds`."""
        self.world.note("postgres", f"down for {seconds:.3f} s")
        self.down_until = self.world.now + seconds
        for session in list(self._sessions):
            session.lose()

    # -- real sessions -----------------------------------------------------------------------------

    def take(self, startup: bytes) -> Backend:
        """Return a real session for this startup message."""
        key = of_simulation(startup)
        self._used[key] = self._used.get(key, 0) + 1
        self.most[key] = max(self.most.get(key, 0), self._used[key])
        free = self._free.get(key)
        backend = free.pop() if free else Backend(self._path, key, monitor=self.monitor)
        backend.may_wait = lambda: self._may_wait(backend)
        return backend

    def _may_wait(self, backend: Backend) -> bool:
        """Return True if another session has an open transaction, or waits itself."""
        return any(one.may_hold_locks(backend) for one in self._sessions)

    def give_back(self, backend: Backend) -> None:
        """Roll back, and keep the real session for the next one; sessions that waited for its locks go on."""
        backend.exchange(_END_REQUEST, 1)
        if backend.status != "I":
            backend.simple("ROLLBACK")
        backend.simple(_CLEAN)
        self._used[backend.key] -= 1
        self._free.setdefault(backend.key, []).append(backend)
        self.unblock()

    def set_time(self, backend: Backend) -> bytes:
        """Return the request that tells a session the time; that of its transaction stays once begun."""
        now = self.world.utc().strftime(_TIME)
        began = f"; SET sim.began = '{now}'" if backend.status == "I" else ""
        return query(f"SET sim.now = '{now}'{began}")

    def forget(self, session: "SimulatedSession") -> None:
        """Drop a session that has ended."""
        self._sessions.pop(session, None)
        if session in self._blocked:
            self._blocked.remove(session)

    def block(self, session: "SimulatedSession") -> None:
        """Note that a session waits for a lock."""
        self._blocked.append(session)

    def unblock(self) -> None:
        """Let the sessions go on whose locks are free now, in the order in which they began to wait."""
        for session in list(self._blocked):
            if session in self._blocked and not self.monitor.is_blocked(session.pid):
                session.go_on()

    def is_blocked(self, session: "SimulatedSession") -> bool:
        """Return True if a session waits for a lock."""
        return session in self._blocked

    def went_on(self, session: "SimulatedSession") -> None:
        """Note that a session waits no more."""
        self._blocked.remove(session)

    def close(self) -> list[Backend]:
        """End all sessions; return the real ones, all idle."""
        for session in list(self._sessions):
            session.release(run_pending=False)
        return [one for free in self._free.values() for one in free]

    def cancel(self, pid: int) -> None:
        """Cancel the statement of a session if it waits for a lock: others run at once."""
        for session in list(self._blocked):
            if session.pid == pid:
                self.monitor.cancel(pid)
                session.go_on(cancelled=True)


class SimulatedSession(asyncio.Transport):
    """The transport through which the driver reaches a session of PostgreSQL."""

    def __init__(self, database: Database, process: Process | None, name: str) -> None:
        super().__init__()
        self.process = process
        self.name = name
        self._database = database
        self._world = database.world
        self._context: Context = here()
        self._protocol: Any = None
        self._backend: Backend | None = None
        self._written = b""
        self._pending: tuple[bytes, str, StatementFault | None, float] | None = None  # not run yet, or waiting
        self._deferred: list[bytes] = []  # statements that the real session has not prepared yet
        self._skipped = 0
        self._in_request = False  # PostgreSQL takes nothing but its continuation: data of a COPY, Sync after an error
        self._ended = False
        if process is not None:
            process.connections[self] = None

    @property
    def pid(self) -> int:
        """Return the process id of the real session."""
        return 0 if self._backend is None else self._backend.pid

    def may_hold_locks(self, other: Backend) -> bool:
        """Return True if it may hold locks for which `other` waits."""
        backend = self._backend
        if backend is None or backend is other:
            return False
        return backend.status != "I" or self._database.is_blocked(self)

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Hand the session to the driver."""
        self._protocol = protocol
        protocol.connection_made(self)

    # -- asyncio.Transport -----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take octets; whole requests become steps."""
        if self._ended:
            return
        self._written += bytes(data)
        try:
            self._taken()
        except Exception as error:
            self._world.violate(f"{self.name}: {error!r}")
            raise

    def _taken(self) -> None:
        if self._backend is None:
            self._open()
        else:
            self._submit_whole()

    def writelines(self, list_of_data: Any) -> None:
        """Take octets."""
        self.write(b"".join(bytes(one) for one in list_of_data))

    def close(self) -> None:
        """End the session."""
        self._end()

    def abort(self) -> None:
        """End the session."""
        self._end()

    def is_closing(self) -> bool:
        """Return True once ended."""
        return self._ended

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the driver's protocol."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def pause_reading(self) -> None:
        """Do nothing: replies arrive whole."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def get_write_buffer_size(self) -> int:
        """Return 0."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: writing never pauses."""

    # -- steps ---------------------------------------------------------------------------------

    def _open(self) -> None:
        octets, self._written = self._written, b""
        if octets[4:8] == _CANCEL:
            pid = int.from_bytes(octets[8:12], "big")
            self._world.after(self._database.rng.uniform(*_LATENCY_S), lambda: self._cancel(pid))
            return
        self._backend = self._database.take(octets)
        self._world.after(self._database.rng.uniform(*_LATENCY_S), lambda: self._deliver(self._greeting()))

    def _greeting(self) -> bytes:
        return b"" if self._backend is None else self._backend.greeting

    def _cancel(self, pid: int) -> None:
        self._world.note(self.name, "cancel")
        self._database.cancel(pid)
        self._lost(None)

    def _submit_whole(self) -> None:
        at = 0
        while at + 5 <= len(self._written):
            kind = self._written[at]
            at += 1 + int.from_bytes(self._written[at + 1 : at + 5], "big")
            if at > len(self._written):
                return
            if kind in _UNIT_ENDS:
                unit, self._written, at = self._written[:at], self._written[at:], 0
                if kind == 0x58:
                    self._end()
                    return
                self._submit(unit)

    def _submit(self, unit: bytes) -> None:
        if self._pending is not None:
            raise RuntimeError("the driver sent a request before the reply to the last one")
        label = self._database.labels.of(self.name, unit)
        process = "" if self.process is None else self.process.name
        before_s, after_s, fault = self._database.choose(process, label, is_writing(label))
        self._pending = (unit, label, fault, after_s)
        self._world.after(before_s + self._database.rng.uniform(*_LATENCY_S), lambda: self._step(unit))

    def _step(self, unit: bytes) -> None:
        """Run the request."""
        if self._ended or self._pending is None or self._pending[0] is not unit:
            return
        _, label, fault, _ = self._pending
        if fault is StatementFault.LOST_BEFORE:
            self._world.note(self.name, f"{label}: lost before")
            self._pending = None
            self.lose()
            return
        self._answered(self._run(unit))

    def _run(self, unit: bytes) -> bytes | None:
        backend = self._backend
        assert backend is not None
        if self._in_request:
            return backend.exchange(unit, 1, flush=unit.endswith(_FLUSH))
        label = "" if self._pending is None else self._pending[1]
        about = about_schema(backend.key, label, unit)
        if about is None or backend.status == "E":
            return self._exchange(backend, unit)
        reply = self._database.known.get(about) or self._database.learned.get(about)
        if reply is None:
            reply = self._exchange(backend, unit)
            if reply is not None and not any(kind == b"E" for kind, _ in messages(reply)):
                self._database.learned[about] = reply
            return reply
        if unit.endswith(_FLUSH):
            self._deferred.append(unit[: 1 + int.from_bytes(unit[1:5], "big")])
            return reply
        return reply[:-1] + backend.status.encode()

    def _exchange(self, backend: Backend, unit: bytes) -> bytes | None:
        """Run a request after what was deferred."""
        self._skipped, deferred = len(self._deferred), b"".join(self._deferred)
        self._deferred.clear()
        request = self._database.set_time(backend) + deferred + unit
        return self._without_deferred(backend.exchange(request, 2, flush=unit.endswith(_FLUSH)))

    def _without_deferred(self, reply: bytes | None) -> bytes | None:
        """Remove the answers to what was deferred, which the driver has already."""
        if reply is None:
            return None
        parsed = _PARSED * self._skipped
        if not reply.startswith(parsed):
            raise RuntimeError(f"a statement could not be prepared: {reply[:200]!r}")
        return reply[len(parsed) :]

    def go_on(self, *, cancelled: bool = False) -> None:
        """Finish a request whose lock was granted, or that was cancelled."""
        assert self._backend is not None
        reply = self._without_deferred(self._backend.proceed(cancelled=cancelled))
        if reply is not None:
            self._database.went_on(self)
            self._answered(reply)

    def _answered(self, reply: bytes | None) -> None:
        assert self._pending is not None
        unit, label, fault, after_s = self._pending
        if reply is None:
            self._world.note(self.name, f"{label}: waits for a lock")
            self._database.block(self)
            return
        self._pending = None
        kinds = {kind for kind, _ in messages(reply)}
        self._in_request = b"G" in kinds or (b"E" in kinds and unit.endswith(_FLUSH))
        lost = fault is StatementFault.LOST_AFTER
        self._world.note(self.name, f"{label}: {_outcome(reply)}{', reply lost' if lost else ''}")
        for observe in self._database.observers:
            observe(self, label, unit, reply)
        if lost:
            self.lose()
        else:
            wait_s = after_s + self._database.rng.uniform(*_REPLY_S)
            self._world.after(wait_s, lambda: self._deliver(reply))
        self._database.unblock()

    def _deliver(self, octets: bytes) -> None:
        if not self._ended and (self.process is None or self.process.alive):
            asyncio.get_running_loop().call_soon(self._protocol.data_received, octets, context=self._context.copy())

    # -- the end -------------------------------------------------------------------------------

    def sever(self) -> None:
        """End it because its process was killed. PostgreSQL may still run what was sent."""
        self.release(run_pending=self._database.rng.random() < 0.5)

    def lose(self) -> None:
        """Break the connection: the driver sees it at once, and PostgreSQL rolls back."""
        if not self._ended:
            self.release(run_pending=False)
            self._lost(ConnectionResetError(104, "Connection reset by peer"))

    def release(self, *, run_pending: bool) -> None:
        """Give the real session back, after what was sent before, if `run_pending`."""
        self._ended = True
        if self.process is not None:
            self.process.connections.pop(self, None)
        backend, self._backend = self._backend, None
        pending, self._pending = self._pending, None
        was_blocked = self._database.is_blocked(self)
        self._database.forget(self)
        if backend is None:
            return
        if was_blocked:
            self._database.monitor.cancel(backend.pid)
            backend.proceed(cancelled=True)
        elif pending is not None and run_pending and not self._in_request:
            self._run_last(backend, pending[0], pending[1])
        self._database.give_back(backend)

    def _run_last(self, backend: Backend, unit: bytes, label: str) -> None:
        reply = self._exchange(backend, unit)
        if reply is None:
            self._database.monitor.cancel(backend.pid)
            reply = self._without_deferred(backend.proceed(cancelled=True))
        assert reply is not None
        self._world.note(self.name, f"{label}: {_outcome(reply)}, after its process ended")
        for observe in self._database.observers:
            observe(self, label, unit, reply)

    def _end(self) -> None:
        """End it as the driver wishes."""
        if not self._ended:
            self.release(run_pending=self._pending is not None and self._database.rng.random() < 0.5)
            asyncio.get_running_loop().call_soon(self._lost, None, context=self._context.copy())

    def _lost(self, error: Exception | None) -> None:
        self._ended = True
        self._database.forget(self)
        if self.process is None or self.process.alive:
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error, context=self._context.copy())


def _outcome(reply: bytes) -> str:
    """Return what the schedule says of a reply: the tags of its commands, or its error."""
    said = []
    for kind, body in messages(reply):
        if kind == b"C":
            said.append(body[:-1].decode())
        elif kind == b"E":
            said.append(f"error {error_text(body)}")
    return ", ".join(said) or "ok"
