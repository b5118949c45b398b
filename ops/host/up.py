"""Implementation of `ops up`: start the service on this host, supervise it, restart processes on request, drain it.

Start order: state lock, listening sockets, embedded servers, migrations, local DNS and sink, first run, service
processes. They stop in the order in which a message passes them, so that accepted mail can still be settled.
"""

import asyncio
import contextlib
import json
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engine.base import local_mode
from engine.base.settings import FRONT, MIN_DISK_BYTES, BadSetting, HostPort, Loaded, Settings, is_small, variable
from engine.store import socket_activation
from engine.store.socket_activation import WrongSockets
from ops.host import control, disk, log_levels, process_specs, rolling, server_paths
from ops.host.attach import RUNNING, default_url, record_running
from ops.host.console import UpConsole
from ops.host.control import Refused
from ops.host.postgres_server import PostgresServer
from ops.host.process_specs import runs_local_peers
from ops.host.rolling import Roller
from ops.host.server_paths import CannotServe
from ops.host.sockets import ListeningSockets, PortTaken
from ops.host.state import AlreadyRunning, StateLock, UnusableState, kept_peppers, make_state
from ops.host.supervise import StartFailed, Supervisor, last_words
from ops.host.valkey_server import ValkeyServer
from ops.local import personalities
from ops.local.personalities import BadPersonalities

READY_TIMEOUT_S = 60.0
INTERRUPTED = 130


_PLAIN = (
    AlreadyRunning, BadPersonalities, BadSetting, CannotServe, PortTaken, StartFailed, UnusableState, WrongSockets,
)  # fmt: skip


def run(loaded: Loaded) -> int:
    """Run the service until SIGINT or SIGTERM and return the exit status.

    The first signal drains; a second one ends all processes at once. SIGHUP restarts all processes one after the
    other; if the service runs on a terminal, SIGHUP means a closed terminal, and drains. Returns 0 after a drain, 1 if
    the start failed (with a message on standard error), 130 after the second signal.
    """
    with UpConsole() as console:
        try:
            state = make_state(loaded.settings.state)
            with StateLock(state), ListeningSockets() as listeners:
                _check_disk(loaded.settings, state)
                listeners.take()
                return asyncio.run(_serve(_with_ports(loaded, listeners), state, console, listeners))
        except _PLAIN as error:
            console.fail(str(error))
    return 1


def _check_disk(settings: Settings, state: Path) -> None:
    """Raise UnusableState if a disk is read-only, full, or has less free space than the API needs to be ready."""
    for folder in dict.fromkeys((state, server_paths.known_base(state))):
        problem = disk.why_unusable(folder)
        if problem is None and "api" in settings.processes:
            problem = disk.too_small(folder, MIN_DISK_BYTES)
        if problem is not None:
            raise UnusableState(problem)


async def _serve(loaded: Loaded, state: Path, console: UpConsole, listeners: ListeningSockets) -> int:
    """Start everything, wait for a signal, stop everything; returns the exit status."""
    first, second = _signals()
    servers = _embedded(loaded.settings, state)
    (state / RUNNING).unlink(missing_ok=True)
    try:
        async with Supervisor(console.say) as supervisor:
            starting = asyncio.create_task(_start_all(loaded, state, supervisor, servers, console, listeners))
            await _either(starting, first)
            if not starting.done():
                starting.cancel()
                await asyncio.wait({starting})
            async with contextlib.AsyncExitStack() as stack:
                if not starting.cancelled() and starting.exception() is None:
                    roller = Roller(supervisor, console.say)
                    await stack.enter_async_context(_answering(supervisor, state, roller))
                    await _run_until_signal(roller, console, first, starting.result())
                if first.is_set():
                    console.say(
                        "Stopping: open requests and deliveries are finished first (a second Ctrl-C stops at once)"
                    )
                await _either(asyncio.create_task(_stop_all(supervisor, listeners)), second)
            if not starting.cancelled():
                starting.result()
    finally:
        (state / RUNNING).unlink(missing_ok=True)
        for server in servers.values():
            server.forget_sockets()
    console.say("Stopped at once" if second.is_set() else "Stopped")
    return INTERRUPTED if second.is_set() else 0


async def _start_all(
    loaded: Loaded,
    state: Path,
    supervisor: Supervisor,
    servers: Mapping[str, PostgresServer | ValkeyServer],
    console: UpConsole,
    listeners: ListeningSockets,
) -> list[str]:
    """Start all servers and processes; return the lines to print: that the service is ready, and what to do with it."""
    began = time.monotonic()
    given = loaded.settings
    process_specs.check_ports(given, listeners.given)
    if runs_local_peers(given):
        personalities.load(state)
    listeners.open(given, process_specs.socket_names(given))
    process_specs.empty_metrics(state)
    log_levels.forget(state)
    supervisor.forks = process_specs.fork_server(msgspec.structs.replace(given, state=state))
    if supervisor.forks is not None:
        supervisor.forks.start()  # it imports the project while the servers start
    if servers:
        console.stage(f"Starting {' and '.join(server.name for server in servers.values())}")
    await asyncio.gather(*(_start_server(supervisor, server) for server in servers.values()))
    await supervisor.wait_ready(timeout_s=READY_TIMEOUT_S)
    settings = _filled(loaded, state, {field: server.url for field, server in servers.items()})
    record_running(settings, state)
    console.stage("Reading the directory" if FRONT in settings.processes else "Bringing the database up to date")
    await _prepare(supervisor, settings, "database", console)
    is_first_run = not (state / local_mode.FIRST_RUN).exists()
    console.stage("Starting the service")
    peers = process_specs.helpers(settings) if runs_local_peers(settings) else ()
    for spec in (*peers, *process_specs.processes(settings, listeners)):
        supervisor.start(spec)
    await supervisor.wait_ready(timeout_s=READY_TIMEOUT_S)
    welcome = await _prepare(supervisor, settings, "welcome", console)
    first_run = welcome["firstRun"]
    ready = _ready_line(settings, first_run, time.monotonic() - began)
    lines = [ready, *_notes(settings, servers.get("database_url"), welcome)]
    if is_first_run and first_run:
        lines.append(_first_send_command(first_run, state / local_mode.FIRST_RUN, show_key=console.terminal))
    return lines


async def _start_server(supervisor: Supervisor, server: PostgresServer | ValkeyServer) -> None:
    await asyncio.to_thread(server.prepare)
    supervisor.start(process_specs.server(server))


async def _prepare(supervisor: Supervisor, settings: Settings, step: str, console: UpConsole) -> dict[str, Any]:
    """Run a step of `ops.host.prepare` and return its result; raises StartFailed with its sentence."""
    spec = process_specs.preparation(settings, step, terminal=console.terminal)
    async for raw in supervisor.run(spec):
        line = json.loads(raw)
        if "say" in line:
            console.say(line["say"])
        elif "failed" in line:
            raise StartFailed(line["failed"])
        else:
            return dict(line["done"])
    raise StartFailed(f"The start ended early. {last_words(spec)}")


def _notes(settings: Settings, database: PostgresServer | ValkeyServer | None, welcome: Mapping[str, Any]) -> list[str]:
    """Return the lines to print once the service is ready: warnings, and the addresses of console and documentation."""
    lines = [*welcome["warnings"], *[one for one in [local_mode.warning(settings)] if one]]
    if isinstance(database, PostgresServer):
        lines += [_earlier_data_line(folder) for folder in server_paths.earlier_data(database.paths)]
    lines += welcome["ways"]
    if runs_local_peers(settings) and not welcome["firstRun"]:
        lines.append(
            "The first run of this state folder was made in another database, and its account and key are not in this"
            " one. Remove its JSON file, and the next start makes a first account here."
        )
    return lines


def _answering(supervisor: Supervisor, state: Path, roller: Roller) -> contextlib.AbstractAsyncContextManager[None]:
    """Serve operators' requests while inside, also during the stop: `ops stop` asks what it waits for."""
    levels = log_levels.Levels(state, supervisor)

    async def act(asked: dict[str, Any], say: control.Say) -> None:
        await (levels.act if asked.get("do") == "log level" else roller.act)(asked, say)

    return control.answering(state, act)


async def _run_until_signal(roller: Roller, console: UpConsole, first: asyncio.Event, lines: Sequence[str]) -> None:
    """Serve SIGHUP until the first signal to stop; print `lines` first."""
    hangup = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, (first if console.terminal else hangup).set)
    console.ready(lines[0])
    for line in lines[1:]:
        console.say(line)
    socket_activation.tell_ready()  # to `ops up --detach`
    rolling_restarts = asyncio.create_task(_restart_on_hangup(hangup, roller, console))
    await first.wait()
    rolling_restarts.cancel()
    await asyncio.wait({rolling_restarts})


async def _restart_on_hangup(hangup: asyncio.Event, roller: Roller, console: UpConsole) -> None:
    while True:
        await hangup.wait()
        hangup.clear()
        try:
            console.say("Restarting the processes one after the other")
            await roller.restart()
            console.say("All processes were restarted")
        except Refused as error:
            console.say(str(error))


async def _stop_all(supervisor: Supervisor, listeners: ListeningSockets) -> None:
    """Stop API, submission and incoming mail, then delivery, background work, local helpers, embedded servers."""
    listeners.close()  # so that clients are refused once no process accepts, instead of waiting
    for stage in (
        (FRONT, "api", "relay", "mx"),
        ("host",),
        ("mta",),
        ("worker", "metrics"),
        process_specs.HELPERS,
        ("valkey",),
        ("postgres",),
    ):
        await supervisor.stop(*(name for name in supervisor.pids() if rolling.kind(name) in stage))


def _with_ports(loaded: Loaded, listeners: ListeningSockets) -> Loaded:
    """Return the settings with the ports of sockets that systemd passed to us."""
    settings = listeners.settled(loaded.settings)
    if loaded.origin["public_url"] == "default":
        settings = msgspec.structs.replace(settings, public_url=default_url(settings))
    return Loaded(settings, loaded.origin)


def _embedded(settings: Settings, state: Path) -> dict[str, PostgresServer | ValkeyServer]:
    """Return the embedded servers to start, by the setting that lacks a URL."""
    servers: dict[str, PostgresServer | ValkeyServer] = {}
    if FRONT in settings.processes:
        return servers
    if settings.database_url is None:
        servers["database_url"] = PostgresServer(state, durable=settings.durable, small=is_small(settings))
    if settings.redis_url is None:
        servers["redis_url"] = ValkeyServer(state, durable=settings.durable, small=is_small(settings))
    return servers


def _filled(loaded: Loaded, state: Path, urls: Mapping[str, str]) -> Settings:
    """Return the complete settings for the child processes: URLs, pepper, and in local mode the local DNS."""
    given = loaded.settings
    found: dict[str, Any] = {"state": state, **urls}
    if given.key_pepper is None:
        if given.directory_url is not None:
            raise BadSetting(f"{variable('key_pepper')} is not set; set the pepper that all cells and fronts share")
        found |= kept_peppers(state)
    if runs_local_peers(given):
        if loaded.origin["dns_servers"] == "default":
            found["dns_servers"] = (HostPort(process_specs.LOOPBACK, given.dns_port),)
        if loaded.origin["allow_private_mx"] == "default":
            found["allow_private_mx"] = True  # the sink listens on loopback
    return msgspec.structs.replace(given, **found)


def _ready_line(settings: Settings, first_run: Mapping[str, Any], took_s: float) -> str:
    host = f"[{settings.api_host}]" if ":" in settings.api_host else settings.api_host
    parts = [f"metrics http://{host}:{settings.metrics_port}/metrics"]
    for name, title in (("api", "API"), (FRONT, "front")):
        if name in settings.processes:
            parts.insert(0, f"{title} http://{host}:{settings.api_port}")
    if process_specs.relays(settings):
        parts.append(f"SMTP submission {settings.submission_host}:{settings.submission_port}")
    elif settings.relay_workers and "relay" in settings.processes:
        parts.append("no SMTP submission: set WAYBILL_TLS_CERT and WAYBILL_TLS_KEY")
    if process_specs.mx_processes(settings):
        parts.append(f"incoming mail {settings.mx_host}:{settings.mx_port}")
    if runs_local_peers(settings):
        parts.append(f"sink {settings.state / 'sink'}")
    if first_run:
        parts.append(f"first run {settings.state / local_mode.FIRST_RUN}")
    return f"Waybill is ready in {took_s:.1f} s: " + " · ".join(parts)


def _earlier_data_line(folder: Path) -> str:
    return (
        f"{folder} contains the data of an earlier state folder at this path. It is kept but not used; the earlier "
        "folder still needs it if it was moved."
    )


def _first_send_command(first_run: Mapping[str, Any], file: Path, *, show_key: bool) -> str:
    """Return a command that sends a first message. It contains the key only on a terminal, so that no log keeps it."""
    read = f'import json; print(json.load(open({json.dumps(str(file))}))["apiKey"])'
    key = first_run["apiKey"] if show_key else f"$(python3 -c {shlex.quote(read)})"
    body = {
        "from": f"hello@{first_run['domain']}",
        "to": ["ann@example.com"],
        "subject": "Hello from Waybill",
        "text": "It works.",
    }
    return (
        f"Send a first message:\n\n  curl -s {first_run['baseUrl']}/v1/emails \\\n"
        f'    -H "Authorization: Bearer {key}" \\\n'
        f"    -H 'Content-Type: application/json' \\\n    -d {shlex.quote(json.dumps(body))}\n"
    )


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return events for the first and the second signal to stop, with handlers installed."""
    first, second = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # SIGHUP too, until the start is complete
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return first, second


async def _either(task: asyncio.Task[Any], event: asyncio.Event) -> None:
    """Wait until the task is done or the event is set; never cancels the task."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
