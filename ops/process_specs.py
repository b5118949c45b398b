"""What `ops up` runs: the specification and the readiness probe of each process, and the ports they need."""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from engine.base.settings import PREFIX, Settings, to_environ, variable
from ops import launch, sockets
from ops.embedded import STOP_GRACE_S, Server
from ops.server_paths import QUIET_ENV
from ops.sockets import ListeningSockets, PortTaken
from ops.supervise import ProcessSpec

ROOT = Path(__file__).resolve().parent.parent
LOOPBACK = "127.0.0.1"
__all__ = ["PortTaken", "check_ports", "helpers", "processes", "relays", "server", "socket_names"]

HELPERS = ("dns", "sink")
DRAIN_EXTRA_S = 5.0  # a drained process still has to close its pools
HELPER_GRACE_S = 5.0
RELAY_SOCKETS = (sockets.SUBMISSION, sockets.SUBMISSIONS)
_ANSWER_LIMIT_BYTES = 1024
PRELOAD = "SERVICE_PRELOAD"  # a library that the service's own processes load first, and nobody else: a drill's clock


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


def processes(settings: Settings, listeners: ListeningSockets | None = None) -> Iterator[ProcessSpec]:
    """The service itself, in the order of a message's way; `settings` has every URL filled in.

    Without `listeners` each process binds its ports itself.
    """
    kinds = settings.processes
    if "api" in kinds:
        yield _served("api", ["ops.processes.api"], settings, listeners, (sockets.HTTP,), settings.api_workers)
    for number in range(1, relays(settings) + 1):
        name = f"relay-{number}"
        yield _served(name, ["ops.processes.relay", "--name", name], settings, listeners, RELAY_SOCKETS)
    for number in range(1, settings.mta_workers + 1) if "mta" in kinds else ():
        name = f"mta-{number}"
        yield _served(name, ["mta.process", "--name", name], settings)
    last = "worker" if "worker" in kinds else "metrics"  # a host without a worker shows its figures all the same
    yield _served(last, [f"ops.processes.{last}"], settings)


def relays(settings: Settings) -> int:
    """How many relay processes there are to be; live mode has none until it has a certificate to show."""
    certified = settings.delivery == "local" or settings.tls_cert is not None
    return settings.relay_workers if certified and "relay" in settings.processes else 0


def socket_names(settings: Settings) -> list[str]:
    """The names of the sockets that these processes listen on."""
    names = [sockets.HTTP] if "api" in settings.processes else []
    return names + (list(RELAY_SOCKETS) if relays(settings) else [])


def check_ports(settings: Settings, given: Iterable[str] = ()) -> None:
    """Raises PortTaken, naming the variable, for a port that two settings share or another program holds.

    The ports of the sockets in `given` are nobody's but ours already.
    """
    wanted = [sockets.place(name)[::-1] for name in socket_names(settings) if name not in given]
    wanted.append(("metrics_port", "api_host"))
    hosts = [(port, getattr(settings, host)) for port, host in wanted]
    if settings.delivery == "local":
        hosts += [("sink_port", LOOPBACK), ("dns_port", LOOPBACK)]
    seen: dict[int, str] = {}
    for field, host in hosts:
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


def _served(
    name: str,
    words: list[str],
    settings: Settings,
    listeners: ListeningSockets | None = None,
    listens: Iterable[str] = (),
    announces: int = 1,
) -> ProcessSpec:
    """A process of the service: it says itself when it is ready, as often as `announces`.

    One that listens is replaced by a second one beside it: both accept from the same queue. An mta must not: its
    name is good for one.
    """
    handed = {} if listeners is None else listeners.fds(listens)
    where = (
        (settings.api_host, settings.api_port)
        if listeners is None or name != "api"
        else listeners.address(sockets.HTTP)
    )
    asked = _api_is_ready(*where) if name == "api" else None  # the others' own word is enough
    spec = _python(name, words, settings, asked, settings.drain_s + DRAIN_EXTRA_S, handed)
    first = {"LD_PRELOAD": os.environ[PRELOAD]} if PRELOAD in os.environ else {}
    return replace(
        spec, env={**spec.env, **first}, announces=announces, overlaps=bool(handed), inherits=tuple(handed.values())
    )


def _python(
    name: str,
    words: list[str],
    settings: Settings,
    ready: Callable[[int], Awaitable[bool]] | None,
    grace_s: float,
    handed: Mapping[str, int] | None = None,
) -> ProcessSpec:
    """A module of ours as a process that ends with the supervisor."""
    metrics = _metrics(settings.state)

    def forget_gauges(_pid: int) -> None:
        """Also those of its own children: they are gone with it."""
        for file in metrics.glob("gauge_live*_*.db"):
            pid = file.stem.rpartition("_")[2]
            if pid.isdigit() and not _lives(int(pid)):
                file.unlink(missing_ok=True)

    environ = {key: text for key, text in os.environ.items() if not key.startswith((PREFIX, "LISTEN_"))}
    environ |= to_environ(settings)
    environ |= {"PYTHONUNBUFFERED": "1", "PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    return ProcessSpec(
        name=name,
        argv=tuple(launch.command([sys.executable, "-m", *words], sockets=handed)),
        env=environ,
        cwd=ROOT,
        log=settings.state / "log" / f"{name}.log",
        ready=ready,
        ended=forget_gauges,
        grace_s=grace_s,
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _answers(port: int) -> Callable[[int], Awaitable[bool]]:
    """Ready when the TCP port takes a connection."""

    async def probe(_pid: int) -> bool:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    return probe


def _api_is_ready(host: str, port: int) -> Callable[[int], Awaitable[bool]]:
    """Ready when `GET /readyz` answers 200."""
    dialled = _dialled(host)

    async def probe(_pid: int) -> bool:
        reader, writer = await asyncio.open_connection(dialled, port, limit=_ANSWER_LIMIT_BYTES)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = await reader.read(_ANSWER_LIMIT_BYTES)
            return status.split(b"\r\n", 1)[0].split(b" ")[1:2] == [b"200"]
        finally:
            writer.close()

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
            raise sockets.taken(host, port, name, error) from error
