"""Implementation of `ops up`: start the service on this host, supervise it, restart processes on request, drain it.

Start order: state lock, listening sockets, embedded servers, migrations, local DNS and sink, first run, service
processes. They stop in the order in which a message passes them, so that accepted mail can still be settled.
"""

import asyncio
import json
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engine.base import local_mode
from engine.base.settings import BadSetting, HostPort, Loaded, Settings, runs_everything, variable
from engine.store.socket_activation import WrongSockets
from mta.outbound.source_ips.addresses import check_sources
from ops.host import control, disk, log_levels, process_specs, rolling, server_paths
from ops.host.attach import RUNNING, default_url, record_running
from ops.host.cluster_check import ClusterMismatch, agree
from ops.host.console import UpConsole
from ops.host.control import Refused
from ops.host.postgres_server import PostgresServer
from ops.host.rolling import Roller
from ops.host.server_paths import CannotServe
from ops.host.smtp_access import smtp_lines
from ops.host.sockets import ListeningSockets, PortTaken
from ops.host.state import AlreadyRunning, StateLock, UnusableState, kept_peppers, make_state
from ops.host.supervise import StartFailed, Supervisor
from ops.host.valkey_server import ValkeyServer

READY_TIMEOUT_S = 60.0
REDIS_TIMEOUT_S = 2.0
STORE_WAIT_S = 60.0  # for PostgreSQL during the start; a failover or the recovery of some gigabytes of WAL take less
_STORE_POLL_S = 0.5
INTERRUPTED = 130
Done = TypeVar("Done")


_PLAIN = (
    AlreadyRunning, BadSetting, CannotServe, ClusterMismatch, PortTaken, StartFailed, UnusableState, WrongSockets,
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
    from api.http.readiness import MIN_DISK_BYTES  # noqa: PLC0415 - see _migrate

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
            elif starting.exception() is None:
                await _run_until_signal(supervisor, state, console, first, starting.result())
            if first.is_set():
                console.say("Stopping: open requests and deliveries are finished first (a second Ctrl-C stops at once)")
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
    check_sources(loaded.settings)
    process_specs.check_ports(loaded.settings, listeners.given)
    listeners.open(loaded.settings, process_specs.socket_names(loaded.settings))
    for server in servers.values():
        console.stage(f"Starting {server.name}")
        await asyncio.to_thread(server.prepare)
        supervisor.start(process_specs.server(server))
    await supervisor.wait_ready(timeout_s=READY_TIMEOUT_S)
    settings = _filled(loaded, state, {field: server.url for field, server in servers.items()})
    record_running(settings, state)
    console.stage("Bringing the database up to date")
    await _patiently(lambda: _migrate(settings), console)
    await _patiently(lambda: _agree(settings, console), console)
    await _patiently(lambda: _follow_clock(settings, console), console)
    process_specs.empty_metrics(state)
    log_levels.forget(state)
    first_run: dict[str, Any] = {}
    is_first_run = not (state / local_mode.FIRST_RUN).exists()
    if _runs_local_peers(settings):
        console.stage("Starting the local DNS responder and the sink")
        for spec in process_specs.helpers(settings):
            supervisor.start(spec)
        await supervisor.wait_ready(*process_specs.HELPERS, timeout_s=READY_TIMEOUT_S)
        first_run = await _patiently(lambda: _first_run(settings, state), console)
    console.stage("Starting the service")
    for spec in process_specs.processes(settings, listeners):
        supervisor.start(spec)
    await supervisor.wait_ready(timeout_s=READY_TIMEOUT_S)
    ready = _ready_line(settings, first_run, time.monotonic() - began)
    lines = [ready, *await _notes(settings, servers.get("database_url"), first_run, console)]
    if is_first_run and first_run:
        lines.append(_first_send_command(first_run, state / local_mode.FIRST_RUN, show_key=console.terminal))
    return lines


async def _notes(
    settings: Settings, database: PostgresServer | ValkeyServer | None, first_run: Mapping[str, Any], console: UpConsole
) -> list[str]:
    """Return the lines to print once the service is ready: warnings, and the addresses of console and documentation."""
    lines = [one for one in (await _redis_warning(settings), local_mode.warning(settings)) if one]
    if isinstance(database, PostgresServer):
        lines += [_earlier_data_line(folder) for folder in server_paths.earlier_data(database.paths)]
    lines += smtp_lines(settings)
    if "api" in settings.processes:
        lines += await _console_lines(settings, first_run, terminal=console.terminal)
    if _runs_local_peers(settings) and not first_run:
        lines.append(
            "The first run of this state folder was made in another database, and its account and key are not in this"
            " one. Remove its JSON file, and the next start makes a first account here."
        )
    return lines


def _runs_local_peers(settings: Settings) -> bool:
    """Return True if this host runs the local DNS responder and sink: in local mode, with all processes here."""
    return settings.delivery == "local" and runs_everything(settings)


async def _run_until_signal(
    supervisor: Supervisor, state: Path, console: UpConsole, first: asyncio.Event, lines: Sequence[str]
) -> None:
    """Serve operators' requests and SIGHUP until the first signal to stop. Once they are, print `lines`: who reads
    that the service is ready may ask at once.
    """
    roller = Roller(supervisor, console.say)
    hangup = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, (first if console.terminal else hangup).set)
    levels = log_levels.Levels(state, supervisor)

    async def act(asked: dict[str, Any], say: control.Say) -> None:
        await (levels.act if asked.get("do") == "log level" else roller.act)(asked, say)

    async with control.answering(state, act):
        console.ready(lines[0])
        for line in lines[1:]:
            console.say(line)
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
        ("api", "relay", "mx"),
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
    if settings.database_url is None:
        servers["database_url"] = PostgresServer(state)
    if settings.redis_url is None:
        servers["redis_url"] = ValkeyServer(state)
    return servers


def _filled(loaded: Loaded, state: Path, urls: Mapping[str, str]) -> Settings:
    """Return the complete settings for the child processes: URLs, pepper, and in local mode the local DNS."""
    given = loaded.settings
    found: dict[str, Any] = {"state": state, **urls}
    if given.key_pepper is None:
        found |= kept_peppers(state)
    if given.delivery == "local" and runs_everything(given):
        if loaded.origin["dns_servers"] == "default":
            found["dns_servers"] = (HostPort(process_specs.LOOPBACK, given.dns_port),)
        if loaded.origin["allow_private_mx"] == "default":
            found["allow_private_mx"] = True  # the sink listens on loopback
    return msgspec.structs.replace(given, **found)


async def _patiently(step: Callable[[], Awaitable[Done]], console: UpConsole) -> Done:
    """Run a step of the start, which is repeatable; repeat it while PostgreSQL does not answer, such as during a
    failover or its recovery after a crash. Raises StartFailed for other errors of the database, and after STORE_WAIT_S.
    """
    from engine.store.database_errors import BehindPooler, DatabaseError, DatabaseUnavailable  # noqa: PLC0415 - see _migrate

    ends = time.monotonic() + STORE_WAIT_S
    told = False
    while True:
        try:
            return await step()
        except DatabaseError as error:
            words = str(error) or type(error).__name__
            if isinstance(error, BehindPooler):
                raise StartFailed(words) from error
            if not isinstance(error, DatabaseUnavailable) or time.monotonic() > ends:
                raise StartFailed(
                    f"The database can't be used: {words}."
                    " If WAYBILL_DATABASE_URL is set, check that it is reachable and that its user may create tables."
                ) from error
            if not told:
                console.say(f"PostgreSQL can't be used now ({words}): trying again for up to {STORE_WAIT_S:.0f} s")
                told = True
            await asyncio.sleep(_STORE_POLL_S)


async def _migrate(settings: Settings) -> list[str]:
    from engine.store.migrate import MigrationError, migrate  # noqa: PLC0415 - a second `ops up` must fail fast

    assert settings.database_url is not None
    try:
        return await migrate(settings.database_url)
    except MigrationError as error:
        raise StartFailed(f"The database can't be brought up to date: {error}") from error


async def _follow_clock(settings: Settings, console: UpConsole) -> None:
    """In local mode, follow the clock of the database, which may be another one than at the last start; in live mode,
    warn if it was moved."""
    from engine.store import clock_schema, service_time  # noqa: PLC0415 - as above
    from engine.store.postgres import connect  # noqa: PLC0415 - as above

    assert settings.database_url is not None
    connection = await connect(settings.database_url, name="clock", timeout_s=30)
    try:
        ahead_us = await clock_schema.ahead_us(connection)
    finally:
        connection.terminate()
    follower = service_time.join(settings)
    if follower is not None:
        follower.shared.begin(ahead_us)
    if ahead_us:
        days = f"{ahead_us / 86_400e6:.1f} days"
        console.say(
            f"The clock of this installation is {days} ahead; see `ops clock`"
            if follower is not None
            else f"In local mode, the clock of this database was moved {days} ahead. Live mode does not follow it, and"
            " records from then have dates in the future"
        )


async def _redis_warning(settings: Settings) -> str | None:
    """Return a warning if Redis does not answer, else None. The service starts without Redis."""
    from engine.store import redis as redis_store  # noqa: PLC0415 - as above

    assert settings.redis_url is not None
    client = redis_store.connect(settings.redis_url, timeout_s=REDIS_TIMEOUT_S)
    try:
        async with asyncio.timeout(2 * REDIS_TIMEOUT_S):
            await client.ping()
    except (redis_store.RedisUnavailable, TimeoutError) as error:
        return (
            f"Warning: Redis does not answer ({str(error) or type(error).__name__}). Mail is accepted and delivered"
            f" without it, up to {settings.fresh_due_s:g} s later ({variable('fresh_due_s')}), and each process counts"
            f" request rates for itself. Check {variable('redis_url')}; Redis is used as soon as it answers."
        )
    finally:
        await client.aclose()
    return None


async def _agree(settings: Settings, console: UpConsole) -> None:
    for sentence in await agree(settings):
        console.say(sentence)


async def _first_run(settings: Settings, state: Path) -> dict[str, Any]:
    from ops.host.first_run import ensure  # noqa: PLC0415 - as above

    return dict(await ensure(settings, state))


async def _console_lines(settings: Settings, first_run: Mapping[str, Any], *, terminal: bool) -> list[str]:
    from ops.host.console_access import console_lines  # noqa: PLC0415 - as above

    return await console_lines(settings, first_run, terminal=terminal)


def _ready_line(settings: Settings, first_run: Mapping[str, Any], took_s: float) -> str:
    host = f"[{settings.api_host}]" if ":" in settings.api_host else settings.api_host
    parts = [f"metrics http://{host}:{settings.metrics_port}/metrics"]
    if "api" in settings.processes:
        parts.insert(0, f"API http://{host}:{settings.api_port}")
    if process_specs.relays(settings):
        parts.append(f"SMTP submission {settings.submission_host}:{settings.submission_port}")
    elif settings.relay_workers and "relay" in settings.processes:
        parts.append("no SMTP submission: set WAYBILL_TLS_CERT and WAYBILL_TLS_KEY")
    if process_specs.mx_processes(settings):
        parts.append(f"incoming mail {settings.mx_host}:{settings.mx_port}")
    if _runs_local_peers(settings):
        parts.append(f"sink {settings.state / 'sink'}")
    if first_run:
        parts.append(f"first run {settings.state / local_mode.FIRST_RUN}")
    return f"Waybill is ready in {took_s:.1f} s: " + " · ".join(parts)


def _earlier_data_line(folder: Path) -> str:
    return (
        f"{folder} holds the data of an earlier state folder at this path. It is kept, and not used here; the earlier"
        " folder still needs it if it was moved."
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
