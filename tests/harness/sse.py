"""Readers of Server-Sent Events: a plain one of our own, whose parts a test can hold still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from msgspec import Struct

from tests.harness.api import Api, Params
from tests.harness.patience import PATIENCE_S


class Event(Struct, frozen=True):
    """An event as received."""

    name: str
    id: int | None
    data: dict[str, Any]
    retry: int | None = None


class Reader:
    """An open stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.ended = False
        self._response = response

    async def next(self, timeout_s: float = PATIENCE_S) -> Event:
        """The next event; raises EOFError at the end of the stream."""
        lines: list[str] = []
        async with asyncio.timeout(timeout_s):
            while True:
                line = (await self._response.content.readline()).decode()
                if not line:
                    self.ended = True
                    raise EOFError
                if line == "\n":
                    return _event(lines)
                lines.append(line.rstrip("\n"))

    async def until(self, name: str, timeout_s: float = PATIENCE_S) -> Event:
        """The next event of this name."""
        async with asyncio.timeout(timeout_s):
            while (event := await self.next(timeout_s)).name != name:
                pass
        return event

    async def messages(self, count: int, timeout_s: float = PATIENCE_S, *, name: str = "message") -> list[Event]:
        """The next so many `message` events, or others of one name."""
        async with asyncio.timeout(timeout_s):
            return [await self.until(name, timeout_s) for _ in range(count)]

    async def quiet(self, seconds: float) -> bool:
        """Return True if no `message` arrives within the time."""
        try:
            await self.until("message", seconds)
        except TimeoutError:
            return True
        return False

    def drop(self) -> None:
        """Hang up without a word."""
        self._response.close()


@asynccontextmanager
async def following(
    api: Api, token: str | None, query: str = "", *, headers: Params | None = None, path: str = "/v1/messages/tail"
) -> AsyncIterator[Reader]:
    """A tail, opened; its status may be that of a refusal. A session comes in `headers`."""
    sent = {"Accept": "text/event-stream"} | dict(headers or {})
    if token is not None:
        sent.setdefault("Authorization", f"Bearer {token}")
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=2**20) as session,
        session.get(f"{api.base_url}{path}{query}", headers=sent) as response,
    ):
        reader = Reader(response)
        try:
            yield reader
        finally:
            reader.drop()


def _event(lines: list[str]) -> Event:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        assert name not in fields, f"{name} stands twice"
        fields[name] = value
    return Event(
        fields["event"],
        int(fields["id"]) if "id" in fields else None,
        orjson.loads(fields["data"]),
        int(fields["retry"]) if "retry" in fields else None,
    )
