"""Connect to the server of `WAYBILL_DATABASE_URL` that accepts writes.

A URL may name several (`postgresql://user@host1,host2:5433/waybill`): a primary and replicas that may be promoted. All
are tried at once before a session opens, at most once a second. If two accept writes, the one with the later timeline
is the primary, and a process that has seen a timeline refuses every earlier one: an old primary that returns without
having been demoted gets no writes. The `target_session_attrs` of the URL is not needed.
"""

import asyncio
import socket
import time
from typing import Any
from urllib.parse import parse_qs, unquote

import asyncpg
import structlog

from engine.base import server_url
from engine.base.server_versions import UnsupportedServer, check_postgres
from engine.store.database_errors import DRIVER_ERRORS, DatabaseError, SessionLost
from engine.store.queries import Queries

DEFAULT_PORT = "5432"
# Detects a server that disappears with its host or network: a time limit for unacknowledged data (milliseconds), and
# TCP keepalive (seconds, seconds, number of probes).
USER_TIMEOUT_MS = 10_000
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 5, 2, 3

TRUSTED_S = 1.0  # age of the last check of all servers; a promotion and the return of the old primary take longer
STRAGGLERS_S = 1.0  # to wait for slower servers once one accepts writes

_SQL = Queries.beside(__file__, "postgres_hosts.sql")
_TIMELINE = _SQL.command("timeline")
_CONNECT_ERRORS = (*DRIVER_ERRORS, DatabaseError)

_log = structlog.get_logger("postgres")


class NoPrimary(SessionLost):
    """No server of the URL accepts writes."""


Host = tuple[str, str]


class KnownPrimary:
    """The primary that a process has found among the servers of one URL; lives as long as the process.

    Threads share it; each change is one assignment.
    """

    def __init__(self) -> None:
        self.primary: Host | None = None
        self.timeline = 0  # the latest one seen
        self.at = 0.0  # monotonic time of the last check of all servers

    @property
    def trusted(self) -> Host | None:
        """Return the primary if it was checked less than TRUSTED_S ago."""
        return self.primary if time.monotonic() - self.at < TRUSTED_S else None


_SEEN: dict[str, KnownPrimary] = {}


class Hosts:
    """The servers of one URL, for one pool."""

    def __init__(self, database_url: str) -> None:
        self._hosts = hosts_of(database_url)
        self._url = database_url if len(self._hosts) < 2 else url_without_hosts(database_url)
        self._state = _SEEN.setdefault(database_url, KnownPrimary())
        self._timeline = self._state.timeline
        self._looking = asyncio.Lock()

    def has_moved(self) -> bool:
        """Return True if a later timeline was seen since the last call: sessions that were opened before may be on a
        server that does not know yet that it was replaced.
        """
        before, self._timeline = self._timeline, self._state.timeline
        return 0 < before < self._timeline

    async def connect(self, *_: object, timeout: float, **options: Any) -> asyncpg.Connection:
        """Open a session on the server that accepts writes, within `timeout` seconds. Raises NoPrimary,
        UnsupportedServer, or with one server the errors of asyncpg. `options` are those of `asyncpg.connect`.
        """
        if len(self._hosts) < 2:
            return _writable(await asyncpg.connect(self._url, timeout=timeout, **_any_server(options)))
        each_s = timeout / 2  # first the known primary, then all servers at once
        connection = await self._connect_known(each_s, options)
        if connection is None:
            async with self._looking:
                connection = await self._connect_known(each_s, options) or await self._find_primary(each_s, options)
        return connection

    async def _connect_known(self, timeout_s: float, options: dict[str, Any]) -> asyncpg.Connection | None:
        primary = self._state.trusted
        if primary is None:
            return None
        try:
            connection, _ = await self._open(primary, timeout_s, options)
        except _CONNECT_ERRORS:
            if self._state.primary == primary:
                self._state.primary = None
            return None
        return connection

    async def _find_primary(self, timeout_s: float, options: dict[str, Any]) -> asyncpg.Connection:
        state = self._state
        tries = await self._open_all(timeout_s, options)
        opened = [(host, *found) for host, found in zip(self._hosts, tries, strict=True) if isinstance(found, tuple)]
        for error in tries if not opened else ():
            if isinstance(error, UnsupportedServer):
                raise error
        if not opened:
            errors = [f"{host}:{port} {error!r}" for (host, port), error in zip(self._hosts, tries, strict=True)]
            raise NoPrimary(f"no server accepts writes: {'; '.join(errors)}")
        connection: asyncpg.Connection
        host, connection, timeline = max(opened, key=lambda one: one[2])
        for other, session, its_timeline in opened:
            if session is not connection:
                session.terminate()
                _log.warning("two servers accept writes", server=other, timeline=its_timeline, latest=timeline)
        if timeline < state.timeline:  # another thread has meanwhile found a later one
            connection.terminate()
            self._check(timeline)
        if state.timeline and (host != state.primary or timeline != state.timeline):
            _log.info("PostgreSQL primary changed", server=host, timeline=timeline)
        state.primary, state.timeline, state.at = host, timeline, time.monotonic()
        return connection

    async def _open_all(self, timeout_s: float, options: dict[str, Any]) -> list[Any]:
        """Return for each server its session with its timeline, or an error; after the first session the others have
        STRAGGLERS_S left.
        """
        tries = [asyncio.create_task(self._open(host, timeout_s, options)) for host in self._hosts]
        try:
            waiting = set(tries)
            while waiting and not any(one.done() and one.exception() is None for one in tries):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                await asyncio.wait(waiting, timeout=STRAGGLERS_S)
            for one in waiting:
                one.cancel()
            return await asyncio.gather(*tries, return_exceptions=True)
        except BaseException:
            for one in tries:
                one.cancel()
                one.add_done_callback(_close)
            raise

    async def _open(self, host: Host, timeout_s: float, options: dict[str, Any]) -> tuple[asyncpg.Connection, int]:
        name, port = host
        connection = _writable(
            await asyncpg.connect(self._url, host=name, port=port, timeout=timeout_s, **_any_server(options))
        )
        try:
            [record] = await asyncio.wait_for(_TIMELINE.records(connection), timeout_s)
            timeline = int(record[0])
            self._check(timeline)
        except BaseException:
            connection.terminate()
            raise
        return connection, timeline

    def _check(self, timeline: int) -> None:
        if timeline < self._state.timeline:
            raise NoPrimary(f"timeline {timeline} is older than {self._state.timeline}: demote this server")


def _close(tried: "asyncio.Task[tuple[asyncpg.Connection, int]]") -> None:
    """Close a session that no caller waits for."""
    if not tried.cancelled() and tried.exception() is None:
        tried.result()[0].terminate()


def hosts_of(database_url: str) -> list[Host]:
    """Return host (or socket folder) and port of each server in a URL; [] if it names none."""
    parts = server_url.split(database_url)
    query = parse_qs(parts.query)
    if parts.hosts:
        pairs = [_host_port(item) for item in parts.hosts]
    else:
        pairs = [(host, "") for host in query.get("host", [""])[-1].split(",") if host]
    ports = query.get("port", [""])[-1].split(",")
    if len(ports) == 1:
        ports *= len(pairs)
    return [(host, port or given or DEFAULT_PORT) for (host, port), given in zip(pairs, ports, strict=False)]


def url_without_hosts(database_url: str) -> str:
    """Return the URL without its hosts. asyncpg splits it with `urlsplit`, which rejects several hosts in some patch
    levels of Python, and gets one host at a time as an argument.
    """
    parts = server_url.split(database_url)
    login = f"{parts.login}@" if parts.login else ""
    return f"{parts.scheme}://{login}{parts.path}" + (f"?{parts.query}" if parts.query else "")


def _host_port(item: str) -> Host:
    if item.startswith("["):
        host, _, port = item[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = item.partition(":")
    return unquote(host), port


def _any_server(options: dict[str, Any]) -> dict[str, Any]:
    """Disable the server selection of asyncpg, which would take the first server that responds."""
    return options | {"target_session_attrs": "any"}


def _writable(connection: asyncpg.Connection) -> asyncpg.Connection:
    """Return the session with its keepalive set. Raises UnsupportedServer if its server is too old, NoPrimary if it
    accepts no writes.

    The server reports its version at connection, and since PostgreSQL 14 both settings: this costs no round trip.
    """
    version = connection.get_server_version()
    try:
        check_postgres(version.major, version.micro)
    except UnsupportedServer:
        connection.terminate()
        raise
    settings = connection.get_settings()
    for setting in ("in_hot_standby", "default_transaction_read_only"):
        if getattr(settings, setting, "off") == "on":
            connection.terminate()
            raise NoPrimary(f"the server accepts no writes ({setting} is on)")
    return keep_alive(connection)


def keep_alive(connection: asyncpg.Connection) -> asyncpg.Connection:
    """Return the session with time limits that end it if its server disappears with its host or network."""
    link = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # noqa: SLF001 - no option for it
    if link is not None and link.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS), (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
            (socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S), (socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        ):  # fmt: skip
            link.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
