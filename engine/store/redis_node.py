"""One Redis server as one process talks to it: its connections, and the circuit that keeps it from costing time when
it is dead or hangs. Commands go out together and come back in order; no call waits for another.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import hiredis
from redis.asyncio import Connection, ConnectionPool
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

OPEN_S = 1.0  # after a failure nobody asks a server for this long
CONNECT_TIMEOUT_S = 0.5

AWAY = (RedisError, OSError, TimeoutError)

Word = str | bytes | int | float


class RedisUnavailable(Exception):  # noqa: N818 - an answer, not a fault
    """Redis, or the server that keeps a key, can't be asked just now."""


class RedisCommand(NamedTuple):
    """A command and the one key it is about (None: any server will do). `text`: the script that EVALSHA names."""

    key: str | None
    words: tuple[Word, ...]
    text: str | None = None


class RedisScript:
    """A Lua script on one key. A server that does not know it is given its text: after a flush, a restart, a
    promotion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def command(self, key: str, *arguments: Word) -> RedisCommand:
        """The call with this key as KEYS[1]."""
        return RedisCommand(key, ("EVALSHA", self._digest, 1, key, *arguments), self._text)


class Circuit:
    """Lets calls through while a server answers; after a failure refuses at once for a second."""

    def __init__(self) -> None:
        self._closed_again_at = 0.0
        self.failing = False  # from the first failure until the next success

    @property
    def open(self) -> bool:
        """True while nobody should ask."""
        return self.failing and time.monotonic() < self._closed_again_at

    def failed(self) -> None:
        """The server did not answer."""
        self.failing = True
        self._closed_again_at = time.monotonic() + OPEN_S


class Node:
    """One server, named by a URL of redis-py's; `address` replaces its host and port."""

    def __init__(self, url: str, address: tuple[str, int] | None = None) -> None:
        self.circuit = Circuit()
        self._pool = ConnectionPool.from_url(
            url,
            socket_timeout=None,  # the whole exchange has one time-out, here below
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        if address is not None:
            self._pool.connection_kwargs |= {"host": address[0], "port": address[1]}
        self._free: list[Any] = []
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; of a unix socket its path and 0."""
        given = self._pool.connection_kwargs
        return str(given.get("host") or given.get("path")), int(given.get("port") or 0)

    async def ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        """The answers in order; what the server refuses is a ResponseError among them. Raises Away when it fails,
        hangs, or has just done so."""
        if self.circuit.open:
            raise RedisUnavailable(f"{':'.join(map(str, self.address))} did not answer a moment ago")
        try:
            async with asyncio.timeout(timeout_s):
                answers = await self._exchange([command.words for command in commands])
        except AWAY as error:
            self.circuit.failed()
            raise RedisUnavailable(f"{':'.join(map(str, self.address))}: {type(error).__name__} {error}") from error
        self.circuit.failing = False
        return answers

    def pubsub(self) -> PubSub:
        """A subscription over a connection of its own."""
        return PubSub(connection_pool=self._pool)

    async def drop(self) -> None:
        """Close the connections that nobody uses; those in use are closed by who uses them."""
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
            # The parser's own packer: an eighth of what the client library takes to look at each word.
            packed = b"".join([hiredis.pack_command(one) for one in words])  # type: ignore[arg-type] # its stub: one word
            await connection.send_packed_command(packed, check_health=False)
            for _ in words:
                try:
                    answers.append(await connection.read_response(timeout=math.inf))
                except ResponseError as refused:
                    answers.append(refused)
        except BaseException:  # whatever it was: answers may still come that nobody waits for
            await connection.disconnect(nowait=True)
            raise
        if self._closed:
            await connection.disconnect(nowait=True)
        else:
            self._free.append(connection)
        return answers

    async def _connection(self) -> Connection:
        """One that nobody uses, fit for use. One that the server has closed meanwhile is left behind."""
        while self._free:
            connection: Connection = self._free.pop()
            try:
                if connection.is_connected and not await connection.can_read():
                    return connection
            except AWAY:
                pass
            await connection.disconnect(nowait=True)
        fresh: Connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        await fresh.connect()  # type: ignore[no-untyped-call]
        return fresh
