"""The faults of a drill: which process dies or stands still, without warning, and what goes with it."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import redis
from msgspec import Struct

from loadtests.drill.service import Service, ServicePart

COMES_BACK_S: Final = 30.0  # the supervisor's longest pause between two starts, and the start
PAUSED_LEASES: Final = 2.0
_POLL_S = 0.02


class InjectedFault(Struct, frozen=True):
    """Who was injected, and from when to when (wall clock); a kill takes no time."""

    label: str
    at: float
    until: float


Fault = Callable[[Service, random.Random], str]


class NoProcessToKill(RuntimeError):  # noqa: N818 - named for what it says
    """The process to kill did not come back from the last time."""


def kill_api(service: Service, rng: random.Random) -> str:
    """A worker of Granian, or Granian itself with its workers left to their fate."""
    if rng.random() < 0.5:
        return f"api {_kill(service, ServicePart.API, rng)}"
    return f"api worker {_kill_one(service.api_workers, rng)}"


def kill_mta(service: Service, rng: random.Random) -> str:
    """One of the delivering processes."""
    return f"mta {_kill(service, ServicePart.MTA, rng)}"


def pause_mta(service: Service, rng: random.Random) -> str:
    """A delivering process that stands still until its lease has long run out, and then goes on as if nothing was."""
    pid, _ = stop_mta(service, rng, lambda _: None)
    return f"mta {pid} paused"


def stop_mta(service: Service, rng: random.Random, look: Callable[[int], None]) -> tuple[int, float]:
    """The same; `look` sees the process as soon as it stands still. Its pid, and when it went on (wall clock)."""
    pid = _signal_one(lambda: service.pids(ServicePart.MTA), rng, signal.SIGSTOP)
    try:
        look(pid)
        time.sleep(service.settings.lease_s * PAUSED_LEASES)
    finally:
        ended = time.time()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return pid, ended


def kill_worker(service: Service, rng: random.Random) -> str:
    """The background worker."""
    return f"worker {_kill(service, ServicePart.WORKER, rng)}"


def kill_relay(service: Service, rng: random.Random) -> str:
    """The process that takes mail over SMTP."""
    return f"relay {_kill(service, ServicePart.RELAY, rng)}"


def kill_valkey(service: Service, rng: random.Random) -> str:
    """Everything in Valkey, then Valkey."""
    client = redis.Redis.from_url(_redis_url(service), socket_timeout=2)
    with client, suppress(redis.RedisError, OSError):  # it may be dead of the last time still
        client.flushall()
    return f"valkey {_kill(service, ServicePart.VALKEY, rng)}"


def kill_postgres(service: Service, rng: random.Random) -> str:
    """The postmaster, as a power cut would; its backends notice by themselves."""
    return f"postgres {_kill(service, ServicePart.POSTGRES, rng)}"


def kill_backend(service: Service, rng: random.Random) -> str:
    """A session of the service in PostgreSQL, which takes all others with it: shared memory may be spoilt."""
    return f"backend {_kill_one(service.backends, rng)}"


FAULTS: Final[dict[str, Fault]] = {
    "kill-api": kill_api,
    "kill-mta": kill_mta,
    "pause-mta": pause_mta,
    "kill-worker": kill_worker,
    "kill-relay": kill_relay,
    "kill-valkey": kill_valkey,
    "kill-postgres": kill_postgres,
    "kill-backend": kill_backend,
}


def inject(fault: Fault, service: Service, rng: random.Random) -> InjectedFault:
    """Do it, and note the time."""
    at = time.time()
    label = fault(service, rng)
    return InjectedFault(label, at, time.time())


def _kill(service: Service, part: ServicePart, rng: random.Random) -> int:
    return _kill_one(lambda: service.pids(part), rng)


def _kill_one(find: Callable[[], list[int]], rng: random.Random) -> int:
    return _signal_one(find, rng, signal.SIGKILL)


def _signal_one(find: Callable[[], list[int]], rng: random.Random, number: signal.Signals) -> int:
    """The signal to one of those found; waits for a process that is just being started again."""
    deadline = time.monotonic() + COMES_BACK_S
    while time.monotonic() < deadline:
        pids = find()
        if pids:
            pid = rng.choice(pids)
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                return pid
        time.sleep(_POLL_S)
    raise NoProcessToKill(f"no process to kill came up within {COMES_BACK_S:.0f} s")


def _redis_url(service: Service) -> str:
    url = service.settings.redis_url
    assert url is not None
    return url
