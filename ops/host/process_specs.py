"""Processes that `ops up` runs: their command lines, readiness probes and ports."""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from engine.base.netaddr import connect_host
from engine.base.settings import FRONT, PREFIX, Settings, is_small, runs_everything, to_environ, variable
from engine.base.settings_docs import documented
from engine.store.socket_activation import READY_FD
from ops.host import launch, sockets
from ops.host.embedded import STOP_GRACE_S, Server
from ops.host.fork_server import Request
from ops.host.forks import ForkServer
from ops.host.server_paths import QUIET_ENV
from ops.host.sockets import ListeningSockets, PortTaken
from ops.host.supervise import ProcessSpec

ROOT = Path(__file__).resolve().parent.parent.parent
LOOPBACK = "127.0.0.1"
__all__ = ["PortTaken", "check_ports", "helpers", "mx_processes", "processes", "relays", "server", "socket_names"]

HELPERS = ("dns", "sink")
SMALL_MODULES = ("ops.host.prepare", "ops.processes.api", "ops.processes.host")  # what the fork server imports
DRAIN_EXTRA_S = 5.0  # a drained process still has to close its pools
HELPER_GRACE_S = 5.0
RELAY_SOCKETS = (sockets.SUBMISSION, sockets.SUBMISSIONS)
MX_SOCKETS = (sockets.SMTP,)
_ANSWER_LIMIT_BYTES = 1024
PRELOAD = "SERVICE_PRELOAD"  # LD_PRELOAD for the service's own processes only; drills use it to shift the clock


def server(embedded: Server) -> ProcessSpec:
    """Return the specification of a prepared embedded server."""

    async def ready(pid: int) -> bool:
        return await asyncio.to_thread(embedded.ready, pid)

    return ProcessSpec(
        name=embedded.name,
        argv=tuple(embedded.command()),
        env=QUIET_ENV,
        log=embedded.log,
        before=embedded.clear_leftovers,
        ready=ready,
        beside=embedded.beside,
        stop_signal=embedded.stop_signal,
        last_signal=embedded.last_signal,
        grace_s=STOP_GRACE_S,
    )


def runs_local_peers(settings: Settings) -> bool:
    """Return True if this host runs the local DNS responder and sink: in local mode, with all processes here."""
    return settings.delivery == "local" and runs_everything(settings)


def helpers(settings: Settings) -> Iterator[ProcessSpec]:
    """Yield the DNS responder and the SMTP sink of local mode, which the small profile has in `host`."""
    if settings.delivery != "local" or is_small(settings):
        return
    dns = ["ops.local.dns", "--port", str(settings.dns_port), "--sink-port", str(settings.sink_port)]
    yield _python("dns", dns, settings, _ports_are_open(settings.dns_port), HELPER_GRACE_S)
    sink = ["ops.local.sink", "--port", str(settings.sink_port), "--store", str(settings.state / "sink")]
    sink += ["--clock", str(settings.state)]
    sink += ["--dns", f"{LOOPBACK}:{settings.dns_port}", "--personalities", str(settings.state)]
    if mx_processes(settings):
        sink += ["--reports-to", f"{connect_host(settings.mx_host)}:{settings.mx_port}"]
    yield _python("sink", sink, settings, _ports_are_open(settings.sink_port), HELPER_GRACE_S)


def processes(settings: Settings, listeners: ListeningSockets | None = None) -> Iterator[ProcessSpec]:
    """Yield the service's processes, in the order in which a message passes them; `settings` has all URLs.

    Without `listeners`, each process binds its ports itself.
    """
    kinds = settings.processes
    if is_small(settings):
        yield from _small(settings, listeners)
        return
    for name in ("api", FRONT):
        if name in kinds:
            yield _served(name, [f"ops.processes.{name}"], settings, listeners, (sockets.HTTP,), settings.api_workers)
    if FRONT in kinds:
        names = [name for name in socket_names(settings) if name != sockets.HTTP]
        if names:
            yield _served("front-smtp", ["ops.processes.front_smtp"], settings, listeners, names)
    for number in range(1, relays(settings) + 1) if FRONT not in kinds else ():
        name = f"relay-{number}"
        yield _served(name, ["ops.processes.relay", "--name", name], settings, listeners, RELAY_SOCKETS)
    for number in range(1, mx_processes(settings) + 1) if FRONT not in kinds else ():
        name = f"mx-{number}"
        yield _served(name, ["ops.processes.mx", "--name", name], settings, listeners, MX_SOCKETS)
    for number in range(1, settings.mta_workers + 1) if "mta" in kinds else ():
        name = f"mta-{number}"
        yield _served(name, ["mta.process", "--name", name], settings)
    last = "worker" if "worker" in kinds else "metrics"  # a host without a worker still serves metrics
    yield _served(last, [f"ops.processes.{last}"], settings)


def _small(settings: Settings, listeners: ListeningSockets | None) -> Iterator[ProcessSpec]:
    """Yield the processes of the small profile, forks of a server that has imported both."""
    if "api" in settings.processes:
        yield _served("api", ["ops.processes.api"], settings, listeners, (sockets.HTTP,))
    names = [name for name in socket_names(settings) if name != sockets.HTTP]
    absent = (
        {"api"} | ({"relay"} if relays(settings) == 0 else set()) | ({"mx"} if mx_processes(settings) == 0 else set())
    )
    parts = {"worker" if "worker" in settings.processes else "metrics", *settings.processes} - absent
    spec = _served("host", ["ops.processes.host"], settings, listeners, names, len(parts))
    spec = replace(spec, overlaps=False, grace_s=3 * settings.drain_s + DRAIN_EXTRA_S)  # it has an mta, drains in order
    if runs_local_peers(settings):
        spec = replace(spec, ready=_ports_are_open(settings.dns_port, settings.sink_port))
    yield spec


def preparation(settings: Settings, step: str, *, terminal: bool) -> ProcessSpec:
    """Return a step of `ops.host.prepare`, which prints JSON lines."""
    words = ["ops.host.prepare", step, *(["--terminal"] if terminal else [])]
    return _python("prepare", words, settings, None, HELPER_GRACE_S)


def fork_server(settings: Settings) -> ForkServer | None:
    """Return the server that processes of the small profile are forks of; None if they are ordinary processes."""
    if not _forks(settings):
        return None
    # The metrics of a process are in files if prometheus_client finds this variable when it is imported.
    environ = {**_outer_environ(), "PROMETHEUS_MULTIPROC_DIR": str(_metrics(settings.state))}
    return ForkServer(SMALL_MODULES, environ, ROOT, settings.state / "log" / "fork-server.log")


def _forks(settings: Settings) -> bool:
    return is_small(settings) and sys.platform == "linux" and PRELOAD not in os.environ


def relays(settings: Settings) -> int:
    """Return the number of relay processes; 0 in live mode without a certificate."""
    certified = settings.delivery == "local" or settings.tls_cert is not None
    wanted = settings.relay_workers if certified and {"relay", FRONT} & set(settings.processes) else 0
    return min(wanted, 1) if is_small(settings) else wanted


def mx_processes(settings: Settings) -> int:
    """Return the number of mx processes."""
    wanted = settings.mx_workers if {"mx", FRONT} & set(settings.processes) else 0
    return min(wanted, 1) if is_small(settings) else wanted


def socket_names(settings: Settings) -> list[str]:
    """Return the names of the sockets that this host's processes listen on."""
    names = [sockets.HTTP] if {"api", FRONT} & set(settings.processes) else []
    names += RELAY_SOCKETS if relays(settings) else ()
    return names + list(MX_SOCKETS if mx_processes(settings) else ())


def check_ports(settings: Settings, given: Iterable[str] = ()) -> None:
    """Raise PortTaken, with the variable, for a port that two settings share or that is in use.

    Sockets in `given` are already ours and are not checked.
    """
    wanted = [sockets.address_settings(name)[::-1] for name in socket_names(settings) if name not in given]
    wanted.append(("metrics_port", "api_host"))
    hosts = [(port, getattr(settings, host)) for port, host in wanted]
    if settings.delivery == "local":
        hosts += [("sink_port", LOOPBACK), ("dns_port", LOOPBACK)]
    seen: dict[int, str] = {}
    for field, host in hosts:
        port = getattr(settings, field)
        if port in seen:
            raise PortTaken(f"{variable(field)} and {variable(seen[port])} are both {port}. Change one of them.")
        seen[port] = field
        kinds = [socket.SOCK_STREAM, socket.SOCK_DGRAM] if field == "dns_port" else [socket.SOCK_STREAM]
        for kind in kinds:
            _check_port(host, port, kind, variable(field))


def empty_metrics(state: Path) -> None:
    """Make an empty folder for the processes' shared metrics; deletes those of the last run."""
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
    """Return a process that reports its readiness itself, `announces` times (once per worker).

    A process with listening sockets is restarted by starting its successor first; both accept from the same sockets.
    An mta is not: its name must be unique.
    """
    handed = {} if listeners is None else listeners.fds(listens)
    where = (
        (settings.api_host, settings.api_port)
        if listeners is None or name not in ("api", FRONT)
        else listeners.address(sockets.HTTP)
    )
    asked = _api_is_ready(*where) if name in ("api", FRONT) else None  # other processes only report readiness
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
    """Return a Python module as a process that ends with the supervisor."""
    metrics = _metrics(settings.state)

    def forget_gauges(_pid: int) -> None:
        """Delete metric files of the ended process and of its children."""
        for file in metrics.glob("gauge_live*_*.db"):
            pid = file.stem.rpartition("_")[2]
            if pid.isdigit() and not _lives(int(pid)):
                file.unlink(missing_ok=True)

    environ = _outer_environ() | to_environ(settings)
    if name not in ("host", "prepare") and name.partition("-")[0] not in documented()["key_pepper"].readers:
        for pepper in ("key_pepper", "key_pepper_previous"):
            environ.pop(variable(pepper), None)  # the sink parses mail of anybody; metrics listen on a port
    environ |= {"PYTHONUNBUFFERED": "1", "PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    return ProcessSpec(
        name=name,
        argv=tuple(launch.command([sys.executable, "-m", *words], sockets=handed)),
        env=environ,
        cwd=ROOT,
        log=None if settings.log_output == "stdout" else settings.state / "log" / f"{name}.log",
        ready=ready,
        ended=forget_gauges,
        grace_s=grace_s,
        fork=Request(words[0], words[1:], {}, list(handed or ())) if _forks(settings) else None,
    )


def _outer_environ() -> dict[str, str]:
    """Return the environment variables of this process that are not settings."""
    return {key: text for key, text in os.environ.items() if not key.startswith((PREFIX, "LISTEN_", READY_FD))}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _ports_are_open(*ports: int) -> Callable[[int], Awaitable[bool]]:
    """Return a probe that succeeds when the TCP ports accept a connection."""

    async def probe(_pid: int) -> bool:
        for port in ports:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return True

    return probe


def _api_is_ready(host: str, port: int) -> Callable[[int], Awaitable[bool]]:
    """Return a probe that succeeds when `GET /readyz` answers 200."""
    address = _connect_address(host)

    async def probe(_pid: int) -> bool:
        reader, writer = await asyncio.open_connection(address, port, limit=_ANSWER_LIMIT_BYTES)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = await reader.read(_ANSWER_LIMIT_BYTES)
            return status.split(b"\r\n", 1)[0].split(b" ")[1:2] == [b"200"]
        finally:
            writer.close()

    return probe


async def smtp_greeting(settings: Settings, host: str, port: int) -> bytes:
    """Connect to a port of submission or incoming mail and return its greeting; raises OSError."""
    async with _smtp_connection(settings, host, port) as (reader, _):
        return await reader.read(_ANSWER_LIMIT_BYTES)


async def certificate_days(settings: Settings, host: str, port: int, name: str, context: ssl.SSLContext) -> int:
    """Open a TLS session with the server for incoming mail; return how many days its certificate for `name` is valid.

    Raises OSError, of which a certificate that is not trusted is one.
    """
    async with _smtp_connection(settings, host, port) as (reader, writer):
        for command in (b"EHLO doctor.invalid\r\n", b"STARTTLS\r\n", b""):
            while (line := await reader.readline())[3:4] == b"-":
                pass
            if line[:1] != b"2":
                raise OSError(f"it sent {line[:60]!r}")
            writer.write(command)
        await writer.start_tls(context, server_hostname=name)
        end = ssl.cert_time_to_seconds(writer.get_extra_info("peercert")["notAfter"])
        return int((end - time.time()) // 86_400)


@contextlib.asynccontextmanager
async def _smtp_connection(
    settings: Settings, host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(_connect_address(host), port, limit=_ANSWER_LIMIT_BYTES)
    try:
        own = ip_address(writer.get_extra_info("sockname")[0])
        if any(own in network for network in settings.proxy_networks):
            writer.write(b"PROXY UNKNOWN\r\n")  # the server expects the PROXY header from this address
        yield reader, writer
    finally:
        writer.close()


def _connect_address(host: str) -> str:
    """Return the address to connect to for a server that listens on `host`."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound


def _check_port(host: str, port: int, kind: socket.SocketKind, name: str) -> None:
    """Raise PortTaken if the port can't be bound now. A program that takes it later shows in the process's log."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as trial:
        if kind is socket.SOCK_STREAM:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise sockets.taken(host, port, name, error) from error
