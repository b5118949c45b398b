"""The HTTP client of drills, benches and tests: requests to the API of a service on loopback, each of them timed."""

import asyncio
import random
import time
from contextlib import suppress
from typing import Any, Final, Self

import aiohttp
import msgspec
from msgspec import Struct

ANSWER_S: Final = 20.0  # above the time that the API gives its own commit
PAUSE_S: Final = (0.05, 0.25)  # between two tries, drawn evenly
AGAIN: Final = frozenset({0, 429, 500, 502, 503, 504})  # statuses after which a client repeats its request


class ApiAnswer(Struct, frozen=True):
    """The answer to a request; status 0: none, and `content` holds the error. Times in seconds."""

    status: int
    content: bytes
    took_s: float
    at: float  # wall clock, as the sink's times
    retry_after: str | None = None

    @property
    def json(self) -> dict[str, Any]:
        """Return the JSON body; {} if it is empty or no answer came."""
        return msgspec.json.decode(self.content) if self.status and self.content else {}

    @property
    def text(self) -> str:
        """Return the first 200 characters of the body or of the error."""
        return self.content.decode("utf-8", "replace")[:200]


class ApiClient:
    """Sends requests with one API key. An asynchronous context manager; `keeps` connections, or opens one for each."""

    def __init__(
        self, base_url: str, key: str = "", *, connections: int = 100, timeout_s: float = ANSWER_S, keeps: bool = True
    ) -> None:
        self._base = base_url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._connections = connections
        self._timeout_s = timeout_s
        self._keeps = keeps

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=self._connections, force_close=not self._keeps),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: object = None) -> ApiAnswer:
        """Send a request and return its answer."""
        began = time.monotonic()
        try:
            async with self._session.request(method, self._base + path, json=body) as answer:
                content = await answer.read()
                again = answer.headers.get("Retry-After")
                return ApiAnswer(answer.status, content, time.monotonic() - began, time.time(), again)
        except (aiohttp.ClientError, OSError) as error:  # the time-out is an OSError
            return ApiAnswer(0, repr(error).encode(), time.monotonic() - began, time.time())

    async def insist(
        self, method: str, path: str, body: object = None, *, tries: int = 200, rng: random.Random | None = None
    ) -> ApiAnswer:
        """Repeat a request until it has an answer other than a temporary refusal; return the last answer."""
        draw = rng or random.Random()
        answer = await self.call(method, path, body)
        for _ in range(tries - 1):
            if answer.status not in AGAIN:
                break
            await asyncio.sleep(draw.uniform(*PAUSE_S))
            answer = await self.call(method, path, body)
        return answer

    async def hang_up(self, path: str, body: object, after_s: float) -> None:
        """Post a request and close its connection, after `after_s` at the latest, without reading the body."""
        with suppress(aiohttp.ClientError, OSError):
            limit = aiohttp.ClientTimeout(total=after_s)
            async with self._session.post(self._base + path, json=body, timeout=limit):
                pass
