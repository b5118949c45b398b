"""Which of the servers in `WAYBILL_DATABASE_URL` takes writes: a session opens there and nowhere else.

A URL may name several (`postgresql://user@host1,host2:5433/waybill`): a primary and the replicas that may be promoted.
All are asked at once before a session opens, at most once a second: the one that took writes last may have been left
for another since. Of two that take writes the one with the later timeline is right, and once a process has seen a
timeline it refuses every earlier one: an old primary that comes back without having been demoted gets no writes. What
the URL says of `target_session_attrs` is not needed.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

import asyncpg
import structlog

from engine.base import server_url
from engine.store.queries import Queries

DEFAULT_PORT = "5432"
# A server that vanishes without a word, with its host or its network: what was sent to it is given up, and one that
# owes an answer is asked whether it is there. Milliseconds; seconds; seconds; times.
SENT_FOR_MS = 10_000
QUIET_FOR_S, ASK_EVERY_S, ASK_TIMES = 5, 2, 3

TRUSTED_S = 1.0  # what a look at all servers found; a promotion and the old primary's return take longer
OTHERS_S = 1.0  # that a server which does not answer may keep one waiting that does

_SQL = Queries.beside(__file__, "postgres_hosts.sql")
_TIMELINE = _SQL.command("timeline")
_REFUSED = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.exceptions.InternalClientError,
)

_log = structlog.get_logger("postgres")

Connect = Callable[..., Any]


class NoPrimary(asyncpg.exceptions.InternalClientError):
    """No server of the URL takes writes."""


Host = tuple[str, str]


class KnownPrimary:
    """What a process knows of the servers of one URL; threads share it, each change is one assignment."""

    def __init__(self) -> None:
        self.primary: Host | None = None
        self.timeline = 0  # the latest
        self.at = 0.0  # monotonic, of the last look at all

    @property
    def trusted(self) -> Host | None:
        """The primary, if that was seen just now."""
        return self.primary if time.monotonic() - self.at < TRUSTED_S else None


_SEEN: dict[str, KnownPrimary] = {}


class Hosts:
    """The servers of one URL, for one pool."""

    def __init__(self, database_url: str) -> None:
        self._hosts = hosts_of(database_url)
        self._url = database_url if len(self._hosts) < 2 else url_without_hosts(database_url)
        self._seen = _SEEN.setdefault(database_url, KnownPrimary())
        self._looking = asyncio.Lock()

    async def connect(self, *_: object, timeout: float, **options: Any) -> asyncpg.Connection:
        """A session on the server that takes writes, within `timeout` seconds. Raises NoPrimary, or what asyncpg
        raises where there is one server only. `options` are those of `asyncpg.connect`."""
        if len(self._hosts) < 2:
            return _writable(await asyncpg.connect(self._url, timeout=timeout, **_any(options)))
        each_s = timeout / 2  # the one that was seen just now, then all at once
        connection = await self._known(each_s, options)
        if connection is None:
            async with self._looking:
                connection = await self._known(each_s, options) or await self._looked(each_s, options)
        return connection

    async def _known(self, timeout_s: float, options: dict[str, Any]) -> asyncpg.Connection | None:
        primary = self._seen.trusted
        if primary is None:
            return None
        try:
            connection, _ = await self._open(primary, timeout_s, options)
        except _REFUSED:
            if self._seen.primary == primary:
                self._seen.primary = None
            return None
        return connection

    async def _looked(self, timeout_s: float, options: dict[str, Any]) -> asyncpg.Connection:
        seen = self._seen
        tries = await self._asked(timeout_s, options)
        opened = [(host, *found) for host, found in zip(self._hosts, tries, strict=True) if isinstance(found, tuple)]
        if not opened:
            said = [f"{host}:{port} {error!r}" for (host, port), error in zip(self._hosts, tries, strict=True)]
            raise NoPrimary(f"no server takes writes: {'; '.join(said)}")
        connection: asyncpg.Connection
        host, connection, timeline = max(opened, key=lambda one: one[2])
        for other, session, its_timeline in opened:
            if session is not connection:
                session.terminate()
                _log.warning("a second server takes writes", server=other, timeline=its_timeline, latest=timeline)
        if timeline < seen.timeline:  # another thread has seen a later one meanwhile
            connection.terminate()
            self._check(timeline)
        if seen.timeline and (host != seen.primary or timeline != seen.timeline):
            _log.info("primary", server=host, timeline=timeline)
        seen.primary, seen.timeline, seen.at = host, timeline, time.monotonic()
        return connection

    async def _asked(self, timeout_s: float, options: dict[str, Any]) -> list[Any]:
        """What each server gave, a session with its timeline or an error; once one has given a session the others have
        a moment left."""
        tries = [asyncio.create_task(self._open(host, timeout_s, options)) for host in self._hosts]
        try:
            waiting = set(tries)
            while waiting and not any(one.done() and one.exception() is None for one in tries):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                await asyncio.wait(waiting, timeout=OTHERS_S)
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
            await asyncpg.connect(self._url, host=name, port=port, timeout=timeout_s, **_any(options))
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
        if timeline < self._seen.timeline:
            raise NoPrimary(f"timeline {timeline} was left for {self._seen.timeline}: demote this server")


def _close(tried: "asyncio.Task[tuple[asyncpg.Connection, int]]") -> None:
    """A session that nobody waits for any more."""
    if not tried.cancelled() and tried.exception() is None:
        tried.result()[0].terminate()


def hosts_of(database_url: str) -> list[Host]:
    """Host (or socket folder) and port of each server that a URL names; [] where it names none."""
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
    """Return the URL without the hosts before its path: asyncpg splits it with `urlsplit`, which refuses several of
    them in some patch levels of Python, and is given one host at a time beside it."""
    parts = server_url.split(database_url)
    login = f"{parts.login}@" if parts.login else ""
    return f"{parts.scheme}://{login}{parts.path}" + (f"?{parts.query}" if parts.query else "")


def _host_port(item: str) -> Host:
    if item.startswith("["):
        host, _, port = item[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = item.partition(":")
    return unquote(host), port


def _any(options: dict[str, Any]) -> dict[str, Any]:
    """asyncpg is not to choose: it would take the first server that answers."""
    return options | {"target_session_attrs": "any"}


def _writable(connection: asyncpg.Connection) -> asyncpg.Connection:
    """The session itself, watched for a server that vanishes; raises NoPrimary on one that takes no writes. Servers
    say so themselves (PostgreSQL 14 and later report both settings), so this costs no round trip."""
    said = connection.get_settings()
    for setting in ("in_hot_standby", "default_transaction_read_only"):
        if getattr(said, setting, "off") == "on":
            connection.terminate()
            raise NoPrimary(f"the server takes no writes ({setting} is on)")
    link = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # noqa: SLF001 - no option for it
    if link is not None and link.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_USER_TIMEOUT, SENT_FOR_MS), (socket.TCP_KEEPIDLE, QUIET_FOR_S),
            (socket.TCP_KEEPINTVL, ASK_EVERY_S), (socket.TCP_KEEPCNT, ASK_TIMES),
        ):  # fmt: skip
            link.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
