"""The process faults of drills: kill or stop one process of the service, chosen at random."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import redis
from msgspec import Struct

from loadtests.kit.processes import connections_of, signal_all
from loadtests.kit.service import Service, ServicePart

COMES_BACK_S: Final = 30.0  # the supervisor's longest pause between two starts, and the start
PAUSED_LEASES: Final = 2.0
_POLL_S = 0.02


class InjectedFault(Struct, frozen=True):
    """An injected fault, with its start and end by the wall clock; a kill has no duration."""

    label: str
    at: float
    until: float


Fault = Callable[[Service, random.Random], str]


class NoProcessToKill(RuntimeError):  # noqa: N818 - named for what it says
    """No process of the wanted kind was running in time."""


def kill_api(service: Service, rng: random.Random) -> str:
    """Kill an API worker, or the Granian main process, which leaves its workers behind."""
    if rng.random() < 0.5:
        return f"api {_kill(service, ServicePart.API, rng)}"
    return f"api worker {_kill_one(service.api_workers, rng)}"


def _killing(part: ServicePart) -> Fault:
    """Return the fault that kills one process of this kind."""
    return lambda service, rng: f"{part.name.lower()} {_kill(service, part, rng)}"


kill_mta: Final = _killing(ServicePart.MTA)
kill_worker: Final = _killing(ServicePart.WORKER)
kill_relay: Final = _killing(ServicePart.RELAY)
kill_postgres: Final = _killing(ServicePart.POSTGRES)  # as a power cut would; its backends end by themselves


def pause_mta(service: Service, rng: random.Random) -> str:
    """Stop an mta process for twice its lease, then continue it."""
    pid, _ = stop_mta(service, rng, lambda _: None)
    return f"mta {pid} paused"


def stop_mta(service: Service, rng: random.Random, look: Callable[[int], None]) -> tuple[int, float]:
    """Stop an mta process for twice its lease, then continue it; return its pid and the time it continued (wall
    clock).

    `look` is called with the pid as soon as the process has stopped.
    """
    pid = _signal_one(lambda: service.pids(ServicePart.MTA), rng, signal.SIGSTOP)
    try:
        look(pid)
        time.sleep(service.settings.lease_s * PAUSED_LEASES)
    finally:
        ended = time.time()
        signal_all([pid], signal.SIGCONT)
    return pid, ended


def until_some(service: Service, part: ServicePart) -> list[int]:
    """Return the processes of this kind; waits for one that is being restarted. Raises NoProcessToKill."""
    return _until_some(lambda: service.pids(part), time.monotonic() + COMES_BACK_S)


def kill_mx(service: Service, rng: random.Random) -> str:
    """Kill an mx process that has clients."""
    port = service.mx_port

    def serving() -> list[int]:
        return [pid for pid in service.pids(ServicePart.MX) if _has_clients(pid, port)]

    return f"mx {_kill_one(serving, rng)}"


def kill_valkey(service: Service, rng: random.Random) -> str:
    """Delete all data in Valkey, then kill it."""
    client = redis.Redis.from_url(service.redis_url, socket_timeout=2)
    with client, suppress(redis.RedisError, OSError):  # it may be dead of the last time still
        client.flushall()
    return f"valkey {_kill(service, ServicePart.VALKEY, rng)}"


def kill_backend(service: Service, rng: random.Random) -> str:
    """Kill one PostgreSQL backend of the service; PostgreSQL then ends all others, because shared memory may be
    corrupt."""
    return f"backend {_kill_one(service.backends, rng)}"


FAULTS: Final[dict[str, Fault]] = {
    "kill-api": kill_api, "kill-mta": kill_mta, "pause-mta": pause_mta, "kill-worker": kill_worker,
    "kill-relay": kill_relay, "kill-mx": kill_mx, "kill-valkey": kill_valkey, "kill-postgres": kill_postgres,
    "kill-backend": kill_backend,
}  # fmt: skip


def inject(fault: Fault, service: Service, rng: random.Random) -> InjectedFault:
    """Inject a fault and return it with its start and end."""
    at = time.time()
    label = fault(service, rng)
    return InjectedFault(label, at, time.time())


def _kill(service: Service, part: ServicePart, rng: random.Random) -> int:
    return _kill_one(lambda: service.pids(part), rng)


def _kill_one(find: Callable[[], list[int]], rng: random.Random) -> int:
    return _signal_one(find, rng, signal.SIGKILL)


def _signal_one(find: Callable[[], list[int]], rng: random.Random, number: signal.Signals) -> int:
    """Send a signal to one of the processes found; waits for a process that is being restarted."""
    deadline = time.monotonic() + COMES_BACK_S
    while True:
        pid = rng.choice(_until_some(find, deadline))
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return pid


def _until_some(find: Callable[[], list[int]], deadline: float) -> list[int]:
    while not (pids := find()):
        if time.monotonic() > deadline:
            raise NoProcessToKill(f"no process to kill came up within {COMES_BACK_S:.0f} s")
        time.sleep(_POLL_S)
    return pids


def _has_clients(pid: int, port: int) -> bool:
    with suppress(OSError):  # it has just ended
        return bool(connections_of(pid, port, accepted=True))
    return False
