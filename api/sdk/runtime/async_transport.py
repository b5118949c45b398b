"""Send requests: retries, errors, pages and downloads. The synchronous transport is derived from this file."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from . import retry
from .errors import ApiError, ConnectionFailedError, RequestTimeoutError, api_error
from .sse import LineParser
from .values import encode, query

DEFAULT_TIMEOUT_S = 30.0
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class AsyncTransport:
    """The connection pool, address and key of one client. Holds no other state, so that many threads may share it."""

    def __init__(
        self, *, api_key: str, base_url: str, timeout: float, max_retries: int,
        http_client: httpx.AsyncClient | None, user_agent: str,
    ) -> None:  # fmt: skip
        if not api_key or not api_key.isascii() or any(char.isspace() for char in api_key):
            raise ValueError("api_key must be a key of the service, such as svc_live_…, without blanks")
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, not {base_url!r}")
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self.max_retries = max_retries
        self.http = httpx.AsyncClient(timeout=timeout) if http_client is None else http_client
        self.headers = {"Authorization": f"Bearer {api_key}", "User-Agent": user_agent}

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        content_type: str = "application/json",
        repeatable: bool = False,
    ) -> Any:
        """Return the decoded answer, None for 204. Raises ApiError or ConnectionFailedError.

        `repeatable`: the service may carry the request out twice without harm.
        """
        sent = content if body is None else encode(body)
        headers = None if sent is None else {"Content-Type": content_type}
        response = await self.answer(method, path, params=params, content=sent, headers=headers, repeatable=repeatable)
        if not response.content:
            return None
        try:
            return json.loads(response.content)
        except ValueError:
            message = "The server answered with a body that is not JSON. Is base_url the address of the service?"
            raise ApiError(message, status=response.status_code) from None

    async def answer(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        repeatable: bool = False,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        timeout: httpx.Timeout | None = None,
    ) -> httpx.Response:
        """Return a successful response; its body is not read yet if `stream`."""
        request = self.http.build_request(
            method,
            self.base_url + path,
            params=query(params) if params else None,
            content=content,
            headers=self.headers if headers is None else {**self.headers, **headers},
            timeout=self.timeout if timeout is None else timeout,
        )
        tries, lost = 0, False
        while True:
            tries += 1
            try:
                response = await self.http.send(request, stream=stream, follow_redirects=False)
            except httpx.TransportError as error:
                wait = retry.wait_after_failure(
                    sent=not isinstance(error, _NOT_SENT), tries=tries, retries=self.max_retries, repeatable=repeatable
                )
                if wait is None:
                    raise failure(error) from error
                lost = lost or not isinstance(error, _NOT_SENT)
            else:
                if response.is_success:
                    return response
                if method == "DELETE" and response.status_code == 404 and lost:
                    return httpx.Response(204, request=request)  # the try whose answer was lost deleted it
                refusal = await self._refusal(response, stream=stream)
                wait = retry.wait_after_answer(
                    refusal.status,
                    refusal.type,
                    refusal.retry_after,
                    tries=tries,
                    retries=self.max_retries,
                    repeatable=repeatable,
                )
                if wait is None:
                    raise refusal
            await asyncio.sleep(wait)

    async def _refusal(self, response: httpx.Response, *, stream: bool) -> ApiError:
        try:
            if stream:
                await response.aread()
                await response.aclose()
            answer = json.loads(response.content)
        except (httpx.TransportError, ValueError):
            answer = None
        return api_error(
            response.status_code,
            answer,
            request_id=response.headers.get("X-Request-Id"),
            retry_after=retry.seconds(response.headers.get("Retry-After"), datetime.now(UTC)),
        )

    async def records(self, path: str, params: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield the records of an export as they arrive. Raises ConnectionFailedError if the export breaks off."""
        response = await self.answer("GET", path, params=params, repeatable=True, stream=True)
        parser = LineParser()
        try:
            async for chunk in response.aiter_bytes():
                for line in parser.feed(chunk):
                    yield json.loads(line)
            for line in parser.rest():
                yield json.loads(line)
        except httpx.TransportError as error:
            raise failure(error) from error
        finally:
            await response.aclose()


async def pages(
    fetch: Callable[[str | None], Awaitable[Any]],
) -> AsyncIterator[Any]:
    """Yield the rows of all pages; `fetch` returns the page behind a cursor, the first one for None."""
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        for row in page["data"]:
            yield row
        following = page.get("nextCursor")
        if not following or following == cursor or page.get("hasMore") is False:
            return
        cursor = following


class AsyncDownload:
    """A file that the service sends: `read()` it whole, `save()` it, or iterate over its pieces.

    The request is sent when the first piece is asked for; use `with` to be sure that a file half read is closed.
    """

    def __init__(self, transport: AsyncTransport, path: str, params: Mapping[str, Any] | None = None) -> None:
        self._transport = transport
        self._path = path
        self._params = params
        self._response: httpx.Response | None = None

    async def open(self) -> httpx.Response:
        """Send the request, once, and return the response with the body not read."""
        if self._response is None:
            self._response = await self._transport.answer(
                "GET", self._path, params=self._params, repeatable=True, stream=True
            )
        return self._response

    async def content_type(self) -> str:
        """Return the media type of the file."""
        response = await self.open()
        return str(response.headers.get("Content-Type", "application/octet-stream"))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the file."""
        response = await self.open()
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx.TransportError as error:
            raise failure(error) from error
        finally:
            await response.aclose()

    async def read(self) -> bytes:
        """Return the whole file."""
        return b"".join([chunk async for chunk in self])

    async def save(self, path: str | Path) -> int:
        """Write the file to `path` and return its size; a file that breaks off is removed."""
        target, size = Path(path), 0
        await self.open()
        try:
            with target.open("wb") as file:  # noqa: ASYNC230 - one piece after the other
                async for chunk in self:
                    size += file.write(chunk)
        except BaseException:
            target.unlink(missing_ok=True)  # noqa: ASYNC240
            raise
        return size

    async def aclose(self) -> None:
        """Close the connection if the file was not read to its end."""
        if self._response is not None:
            await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def failure(error: httpx.TransportError) -> ConnectionFailedError:
    """Return our exception for one of httpx."""
    if isinstance(error, httpx.TimeoutException):
        return RequestTimeoutError(f"The service did not answer in time ({type(error).__name__}).")
    return ConnectionFailedError(f"The connection failed: {str(error) or type(error).__name__}")
