"""Pass one request to a cell and its response back, both as streams.

Bodies that are small are read first, so that a request on a pooled connection that the cell has closed can be repeated
where HTTP allows it. All others flow: the client waits for the cell, and the cell for the client.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

import aiohttp
import msgspec
import yarl
from msgspec import Struct
from multidict import CIMultiDict

from api.http import forwarded
from api.http.body import too_slow
from api.http.graceful_shutdown import Shutdown
from api.http.stream import broken_body
from api.http.visiting_operator import VOUCH_PATH, Errand
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.cells.ask import CellSilent, ask, credential
from engine.cells.directory import Cell
from engine.store.deadlines import within

SMALL_BYTES: Final = 32 * 1024
CONNECT_S: Final = 2.0
READ_S: Final = 90.0  # between two pieces of a response; a tail sends a heartbeat every 15 s, operations end after 65 s
MAX_HEAD_BYTES: Final = 64 * 1024

# RFC 9110 7.6.1. `Expect` is answered by this process's server, which reads the body when it is asked for.
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"expect",
    }
)  # fmt: skip
_OURS: Final = b"x-waybill-"  # headers between fronts and cells, which no client may send
_SKIPPED: Final = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")

_OF_OPERATOR: Final = frozenset({b"cookie", b"x-csrf-token", b"user-agent"})

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]


class CellDown(Exception):  # noqa: N818 - named for the state
    """The cell did not answer. `sent`: it may have received the request."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class RequestBody:
    """The body of a request: read as a whole up to a size, or piece by piece."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, deadline_s: float) -> None:
        named = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
        # With both, the server reads chunks (RFC 9112 6.3), and the length must go no further (6.1).
        is_chunked = b"transfer-encoding" in named
        self.length = None if is_chunked or not named else int(named[b"content-length"])
        self.ended = not named or self.length == 0
        self._receive = receive
        self._deadline_s = deadline_s
        self._read = bytearray()
        self._begun = False

    @property
    def is_small(self) -> bool:
        """Return True if the body is read, or declares that it is small."""
        return self.ended or (self.length is not None and self.length <= SMALL_BYTES)

    async def beginning(self, most: int) -> bytes:
        """Read up to `most` bytes, or a little more, and return all that has been read. Raises Refusal."""
        try:
            with within(self._deadline_s):
                while not self.ended and len(self._read) < most:
                    self._read += await self._more()
        except TimeoutError:
            raise too_slow() from None
        return bytes(self._read)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body once; a second try, on another connection, fails."""
        if self._begun:
            raise aiohttp.ClientPayloadError("the body has been sent already")
        self._begun = True
        if self._read:
            yield bytes(self._read)
        while not self.ended:
            piece = await self._more()
            if piece:
                yield piece

    async def gone(self) -> None:
        """Return when the client has disconnected; only after the end of the body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _more(self) -> bytes:
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise broken_body()
        self.ended = not event.get("more_body", False)
        piece: bytes = event.get("body", b"")
        return piece


def open_session() -> aiohttp.ClientSession:
    """Return the connections of one process to the cells."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),  # a cell closes an idle connection after 30 s
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        max_line_size=MAX_HEAD_BYTES,
        max_field_size=MAX_HEAD_BYTES,
    )


async def request(
    http: aiohttp.ClientSession,
    cell: Cell,
    scope: Mapping[str, Any],
    body: RequestBody,
    client: str,
    extra: Headers = (),
) -> aiohttp.ClientResponse:
    """Send the request of `client` (its address) to the cell and return the response, of which small bodies are read.

    Raises CellDown, Refusal.
    """
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    url = yarl.URL(cell.api_url.rstrip("/") + target.decode("latin-1"), encoded=True)
    data = None
    if body.is_small:
        data = await body.beginning(SMALL_BYTES) or None
    headers = _to_cell(scope, client, extra)
    if body.length == 0 or (body.length is not None and not body.is_small):
        headers["Content-Length"] = str(body.length)
    try:
        response = await http.request(
            scope["method"],
            url,
            headers=headers,
            data=data if body.is_small else body,
            allow_redirects=False,
            skip_auto_headers=_SKIPPED,
        )
        if response.content_length is not None and response.content_length <= SMALL_BYTES:
            await response.read()  # one that breaks off gets a 503 like one that never began
    except aiohttp.ClientConnectorError as error:
        raise CellDown(sent=False) from error
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error.__cause__, Refusal):
            raise error.__cause__ from None
        raise CellDown(sent=True) from error
    return response


async def vouched(
    http: aiohttp.ClientSession, cell: Cell, scope: Mapping[str, Any], client: str, errand: Errand, settings: Settings
) -> bytes:
    """Return the statement of an operator's own cell for a request in another one. Raises CellDown, Refusal."""
    headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _OF_OPERATOR}
    headers[forwarded.HEADER.decode()] = client
    try:
        reply = await ask(http, cell, VOUCH_PATH, credential(settings.pepper), msgspec.json.encode(errand), headers)
        if reply.status == 200:
            return reply.content
        found = msgspec.json.decode(reply.content, type=_Refused).error
        refusal = Refusal(ErrorType(found.type), found.message)
    except (CellSilent, msgspec.DecodeError, ValueError) as error:  # ValueError: a type of a later version
        raise CellDown(sent=True) from error
    raise refusal


class _RefusedError(Struct):
    type: str
    message: str


class _Refused(Struct):
    error: _RefusedError


async def answer(
    response: aiohttp.ClientResponse, body: RequestBody, send: Send, *, write_s: float, added: Headers = ()
) -> None:
    """Pass the response on until its end, or until the client disconnects or stops reading.

    A response that breaks off raises, so that the server breaks off as well and the client can tell.
    """
    head = [(name.lower(), value) for name, value in response.raw_headers]
    headers = [*_end_to_end(head), *added]
    if Shutdown.begun or not body.ended:
        headers.append((b"connection", b"close"))
    if response.content_length is not None and response.content_length <= SMALL_BYTES:
        whole = await response.read()
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        async with asyncio.timeout(write_s):
            await send({"type": "http.response.body", "body": whole, "more_body": False})
        return
    passing = asyncio.ensure_future(_pass(response, headers, send, write_s))
    watching = asyncio.ensure_future(body.gone()) if body.ended else None
    try:
        await asyncio.wait([passing, *([watching] if watching else [])], return_when=asyncio.FIRST_COMPLETED)
        if passing.done():
            passing.result()
    finally:
        for task in (passing, watching):
            if task is not None and not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


async def _pass(
    response: aiohttp.ClientResponse, headers: list[tuple[bytes, bytes]], send: Send, write_s: float
) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    async for piece in response.content.iter_any():
        async with asyncio.timeout(write_s):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _to_cell(scope: Mapping[str, Any], client: str, extra: Headers) -> CIMultiDict[str]:
    """Return the headers for the cell: end-to-end ones, with the client's address.

    The front has read what its own proxies say of the client; a cell has to trust fronts alone.
    """
    headers = CIMultiDict[str]()
    for name, value in _end_to_end(scope["headers"]):
        if name not in (b"content-length", forwarded.HEADER) and not name.startswith(_OURS):
            headers.add(name.decode("ascii", "replace"), value.decode("utf-8", "replace"))
    headers[forwarded.HEADER.decode()] = client
    for name, value in extra:
        headers[name.decode()] = value.decode()
    return headers


def _end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers without those of the connection, and those that its `Connection` field names."""
    given = list(headers)
    named = {
        one.strip().lower()
        for name, value in given
        if name == b"connection"
        for one in value.split(b",")
        if one.strip()
    }
    return [(name, value) for name, value in given if name not in _HOP_BY_HOP and name not in named]
