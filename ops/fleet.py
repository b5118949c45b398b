"""What `ops up` runs: the specification and the readiness probe of each process, and the ports they need."""

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

from engine.base.settings import PREFIX, Settings, to_environ, variable
from ops import launch
from ops.embedded import STOP_GRACE_S, Server
from ops.places import QUIET_ENV
from ops.supervise import ProcessSpec

ROOT = Path(__file__).resolve().parent.parent
LOOPBACK = "127.0.0.1"
HELPERS = ("dns", "sink")
DRAIN_EXTRA_S = 5.0  # a drained process still has to close its pools
HELPER_GRACE_S = 5.0
STEADY_S = 1.0  # a process without a door of its own counts as up once it has lived this long
_ANSWER_LIMIT_BYTES = 1024


class PortTaken(RuntimeError):  # noqa: N818 - named for what it says
    """A port can't be had; the text names it and the variable that moves it."""


def server(embedded: Server) -> ProcessSpec:
    """An embedded server that has been prepared."""

    async def ready(pid: int) -> bool:
        return await asyncio.to_thread(embedded.ready, pid)

    return ProcessSpec(
        name=embedded.name,
        argv=tuple(embedded.command()),
        env=QUIET_ENV,
        log=embedded.log,
        before=embedded.clear_leftovers,
        ready=ready,
        stop_signal=embedded.stop_signal,
        last_signal=embedded.last_signal,
        grace_s=STOP_GRACE_S,
    )


def helpers(settings: Settings) -> Iterator[ProcessSpec]:
    """The DNS responder and the SMTP sink of the local mode; `settings.state` is absolute."""
    dns = ["ops.local.dns", "--port", str(settings.dns_port), "--sink-port", str(settings.sink_port)]
    yield _python("dns", dns, settings, _answers(settings.dns_port), HELPER_GRACE_S)
    sink = ["ops.local.sink", "--port", str(settings.sink_port), "--store", str(settings.state / "sink")]
    yield _python("sink", sink, settings, _answers(settings.sink_port), HELPER_GRACE_S)


def processes(settings: Settings) -> Iterator[ProcessSpec]:
    """The service itself, in the order of a message's way; `settings` has every URL filled in."""
    grace_s = settings.drain_s + DRAIN_EXTRA_S
    yield _python("api", ["ops.processes.api"], settings, _api_is_ready(settings), grace_s)
    for number in range(1, relays(settings) + 1):
        name = f"relay-{number}"
        words = ["ops.processes.relay", "--name", name]
        yield _python(name, words, settings, _relay_greets(settings), grace_s)
    for number in range(1, settings.mta_workers + 1):
        name = f"mta-{number}"
        yield _python(name, ["mta.process", "--name", name], settings, _steady(), grace_s)
    yield _python("worker", ["ops.processes.worker"], settings, _steady(), grace_s)


def relays(settings: Settings) -> int:
    """How many relay processes there are to be; live mode has none until it has a certificate to show."""
    certified = settings.delivery == "local" or settings.tls_cert is not None
    return settings.relay_workers if certified else 0


def check_ports(settings: Settings) -> None:
    """Raises PortTaken, naming the variable, for a port that two settings share or another program holds."""
    wanted = [("api_port", settings.api_host), ("metrics_port", settings.api_host)]
    if relays(settings):
        wanted += [(field, settings.submission_host) for field in ("submission_port", "submission_tls_port")]
    if settings.delivery == "local":
        wanted += [("sink_port", LOOPBACK), ("dns_port", LOOPBACK)]
    seen: dict[int, str] = {}
    for field, host in wanted:
        port = getattr(settings, field)
        if port in seen:
            raise PortTaken(f"{variable(field)} and {variable(seen[port])} are both {port}; change one of them.")
        seen[port] = field
        kinds = [socket.SOCK_STREAM, socket.SOCK_DGRAM] if field == "dns_port" else [socket.SOCK_STREAM]
        for kind in kinds:
            _check_port(host, port, kind, variable(field))


def empty_metrics(state: Path) -> None:
    """A fresh folder for the counters that all processes share: those of the last run are history."""
    folder = _metrics(state)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)


def _metrics(state: Path) -> Path:
    return state / "metrics"


def _python(
    name: str, words: list[str], settings: Settings, ready: Callable[[int], Awaitable[bool]], grace_s: float
) -> ProcessSpec:
    """A module of ours as a process that ends with the supervisor."""
    metrics = _metrics(settings.state)

    def forget_gauges(pid: int) -> None:
        for file in metrics.glob(f"gauge_live*_{pid}.db"):
            file.unlink(missing_ok=True)

    environ = {key: text for key, text in os.environ.items() if not key.startswith(PREFIX)}
    environ |= to_environ(settings)
    environ |= {"PYTHONUNBUFFERED": "1", "PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    return ProcessSpec(
        name=name,
        argv=tuple(launch.command([sys.executable, "-m", *words])),
        env=environ,
        cwd=ROOT,
        log=settings.state / "log" / f"{name}.log",
        ready=ready,
        ended=forget_gauges,
        grace_s=grace_s,
    )


def _answers(port: int) -> Callable[[int], Awaitable[bool]]:
    """Ready when the TCP port takes a connection."""

    async def probe(_pid: int) -> bool:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    return probe


def _steady() -> Callable[[int], Awaitable[bool]]:
    """Ready when the same process has lived for `STEADY_S`."""
    since: dict[int, float] = {}

    async def probe(pid: int) -> bool:
        return time.monotonic() - since.setdefault(pid, time.monotonic()) >= STEADY_S

    return probe


def _api_is_ready(settings: Settings) -> Callable[[int], Awaitable[bool]]:
    """Ready when `GET /readyz` answers 200."""
    host = _dialled(settings.api_host)

    async def probe(_pid: int) -> bool:
        reader, writer = await asyncio.open_connection(host, settings.api_port, limit=_ANSWER_LIMIT_BYTES)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = await reader.read(_ANSWER_LIMIT_BYTES)
            return status.split(b"\r\n", 1)[0].split(b" ")[1:2] == [b"200"]
        finally:
            writer.close()

    return probe


def _relay_greets(settings: Settings) -> Callable[[int], Awaitable[bool]]:
    """Ready when a relay says 220; which of several says it does not matter."""

    async def probe(_pid: int) -> bool:
        return (await greeting_of_relay(settings)).startswith(b"220 ")

    return probe


async def greeting_of_relay(settings: Settings) -> bytes:
    """What the submission port says first; raises OSError when nobody listens."""
    host = _dialled(settings.submission_host)
    reader, writer = await asyncio.open_connection(host, settings.submission_port, limit=_ANSWER_LIMIT_BYTES)
    try:
        own = ip_address(writer.get_extra_info("sockname")[0])
        if any(own in network for network in settings.proxy_networks):
            writer.write(b"PROXY UNKNOWN\r\n")  # the relay takes us for a load balancer
        return await reader.read(_ANSWER_LIMIT_BYTES)
    finally:
        writer.close()


def _dialled(host: str) -> str:
    """The address at which a server that listens on `host` can be reached from here."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound


def _check_port(host: str, port: int, kind: socket.SocketKind, name: str) -> None:
    """Bind and let go: exact at this moment, and what comes in between shows in the process's own log."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as trial:
        if kind is socket.SOCK_STREAM:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(
                    f"Port {port} is in use by another program. Stop that one, or set {name} to a free port."
                ) from error
            raise PortTaken(f"Port {port} on {host} can't be opened ({error.strerror}); see {name}.") from error
