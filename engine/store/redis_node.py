"""Talk to one Redis server: its connections, and a circuit breaker that avoids waiting for a server that hangs.

Commands of one call are pipelined; concurrent calls use separate connections. Each new connection asks for the version
of its server, and sends nothing else to one that is too old.
"""

import asyncio
import hashlib
import math
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import hiredis
from redis.asyncio import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse, RedisError, ResponseError

from engine.base.server_versions import UnsupportedServer, check_redis
from engine.base.settings import BadSetting
from engine.store.redis_errors import CLIENT_ERRORS, RedisTooOld, RedisUnavailable, unavailable
from engine.store.redis_subscription import Subscription

OPEN_S = 1.0  # time after a failure in which calls are refused at once
CONNECT_TIMEOUT_S = 0.5
_HELLO = b"*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"
_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")  # the TypeError of redis-py for its options

Word = str | bytes | int | float


class RedisCommand(NamedTuple):
    """A command and its key (None: any server can execute it). `text`: the script that EVALSHA names."""

    key: str | None
    words: tuple[Word, ...]
    text: str | None = None


class RedisScript:
    """A Lua script with one key. A server that does not know its digest (after a flush, restart or promotion) gets its
    text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def command(self, key: str, *arguments: Word) -> RedisCommand:
        """Return the call with this key as KEYS[1]."""
        return RedisCommand(key, ("EVALSHA", self._digest, 1, key, *arguments), self._text)


class Circuit:
    """A circuit breaker: after a failure, calls are refused at once for OPEN_S."""

    def __init__(self) -> None:
        self._closed_again_at = 0.0
        self.failing = False  # from the first failure until the next success

    @property
    def open(self) -> bool:
        """Return True while calls are refused."""
        return self.failing and time.monotonic() < self._closed_again_at

    def failed(self) -> None:
        """Record that the server did not respond."""
        self.failing = True
        self._closed_again_at = time.monotonic() + OPEN_S


class Node:
    """A connection pool of one server, given by a URL of redis-py; `address` replaces its host and port. Raises
    BadSetting if an option of the URL can't be used.
    """

    def __init__(self, url: str, address: tuple[str, int] | None = None) -> None:
        self.circuit = Circuit()
        self._pool = ConnectionPool.from_url(
            url,
            socket_timeout=None,  # `ask` sets one time limit for the whole exchange
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        try:
            self._pool.make_connection()  # type: ignore[no-untyped-call] # it does not connect yet
        except (TypeError, ValueError, RedisError) as error:
            option = _UNKNOWN_OPTION.search(str(error))
            problem = f"the unknown option {option[1]}" if option else str(error)
            raise BadSetting(f"WAYBILL_REDIS_URL can't be used: {problem}") from None
        if address is not None:
            self._pool.connection_kwargs |= {"host": address[0], "port": address[1]}
        self._free: list[Any] = []
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port; for a Unix socket its path and 0."""
        given = self._pool.connection_kwargs
        return str(given.get("host") or given.get("path")), int(given.get("port") or 0)

    @property
    def _name(self) -> str:
        return ":".join(map(str, self.address))

    async def ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        """Return the replies in order; rejected commands have a ResponseError. Raises RedisUnavailable if the server
        fails, hangs, is too old, or did so less than OPEN_S ago.
        """
        if self.circuit.open:
            raise RedisUnavailable(f"{self._name} did not answer a moment ago")
        try:
            async with asyncio.timeout(timeout_s):
                answers = await self._exchange([command.words for command in commands])
        except CLIENT_ERRORS as error:
            self.circuit.failed()
            raise unavailable(error, self._name) from error
        except UnsupportedServer as error:
            self.circuit.failed()
            raise RedisTooOld(str(error)) from error
        self.circuit.failing = False
        return answers

    def pubsub(self) -> Subscription:
        """Return a subscription over a connection of its own."""
        return Subscription(self._pool, self._name)

    async def drop(self) -> None:
        """Close the idle connections; their users close the others."""
        free, self._free = self._free, []
        for connection in free:
            await connection.disconnect(nowait=True)

    async def aclose(self) -> None:
        """Close every connection."""
        self._closed = True
        await self.drop()
        await self._pool.disconnect()

    async def _exchange(self, words: list[tuple[Word, ...]]) -> list[Any]:
        connection = await self._connection()
        answers: list[Any] = []
        try:
            # hiredis packs commands in an eighth of the time that redis-py takes.
            packed = b"".join([hiredis.pack_command(one) for one in words])  # type: ignore[arg-type] # its stub: one word
            await connection.send_packed_command(packed, check_health=False)
            for _ in words:
                try:
                    answers.append(await connection.read_response(timeout=math.inf))
                except ResponseError as refused:
                    answers.append(refused)
        except BaseException:  # replies may still arrive for the abandoned commands
            await connection.disconnect(nowait=True)
            raise
        if self._closed:
            await connection.disconnect(nowait=True)
        else:
            self._free.append(connection)
        return answers

    async def _connection(self) -> Connection:
        """Return an idle connection that the server has not closed, or a new one."""
        while self._free:
            connection: Connection = self._free.pop()
            try:
                if connection.is_connected and not await connection.can_read():
                    return connection
            except CLIENT_ERRORS:
                pass
            await connection.disconnect(nowait=True)
        fresh: Connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        await fresh.connect()  # type: ignore[no-untyped-call]
        try:
            await _check_version(fresh)
        except BaseException:
            await fresh.disconnect(nowait=True)
            raise
        return fresh


async def _check_version(connection: Connection) -> None:
    """Raise UnsupportedServer if the server is too old, a RedisError if it is another kind of server.

    HELLO is allowed to every user whatever the access list says; servers before Redis 6 do not know it.
    """
    await connection.send_packed_command(_HELLO, check_health=False)
    try:
        answer = await connection.read_response(timeout=math.inf)
    except ResponseError as refused:
        if "unknown command" in str(refused).lower():
            check_redis("redis", "5 or older")
        raise
    try:
        facts = dict(zip(answer[::2], answer[1::2], strict=True))
        server, version = facts[b"server"].decode(), facts[b"version"].decode()
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidResponse("it answers, but not as Redis does") from None
    check_redis(server, version)
