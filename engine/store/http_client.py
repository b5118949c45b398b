"""Send HTTP requests to hosts that customers choose: public addresses only, with limits on time and response size.

Everything behind such a URL may be hostile: the name may point to our own network, at once or at the second look-up;
the server may never answer, or slowly, endlessly or with garbage. Our own resolver resolves names, every address is
checked when its socket is created, and the socket connects to that address. Redirects are not followed; proxies, netrc,
cookies and decompression are off.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from ipaddress import ip_address
from typing import Any, cast

import aiohttp
import structlog
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from msgspec import Struct

from engine.base.local_mode import may_dial_private
from engine.base.netaddr import is_public
from engine.base.settings import HostPort, Settings
from engine.store.resolver import Answered, Records, Resolver, TemporaryFailure, system_servers

MAX_ADDRESSES = 8  # per name; more are ignored
KEPT_IDLE_S = 5.0  # most servers close an idle connection after 5 s or later
SESSION_S = 300.0  # so that busy connections follow changes in DNS
RETIRE_S = 60.0  # no request lasts longer
MAX_HEADER_BYTES, MAX_HEADERS = 8_190, 100  # of a response: per line, and number of lines
MAX_STALE = 32  # pooled connections in a row that may turn out to be closed

_LOOPBACK = ("127.0.0.1", "::1")  # RFC 6761 6.3: localhost is not looked up
_SKIPPED = ("Accept", "Accept-Encoding", "User-Agent")
_status_line = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r?\n").match
_head_end = re.compile(rb"\r?\n\r?\n").search

_log = structlog.get_logger("web")


class HttpReply(Struct, frozen=True):
    """A response: its status and the beginning of its body, not decompressed.

    `headers` are lines of `Name: value`, as many as the caller asked for; `retry_after` is the value of that header,
    wherever it stood.
    """

    status: int
    body: bytes
    headers: str = ""
    retry_after: str | None = None


class HttpFailure(Struct, frozen=True):
    """The reason why there was no response, for the owner of the URL. `status` is set if its status line arrived."""

    kind: str  # timeout, refused_address, dns, connect, tls, protocol, url
    text: str
    status: int | None = None


class AddressNotAllowed(OSError):  # noqa: N818 - named for what it says; an OSError is what aiohttp takes for "can't connect"
    """The client may not connect to this address."""


class HttpClient:
    """A pool of connections to any hosts; used within one event loop, which must `close` it."""

    def __init__(
        self, resolver: Resolver, *, may_dial: Callable[[str], bool] = is_public, tls: ssl.SSLContext | None = None
    ) -> None:
        """Create a client. `may_dial` accepts or rejects addresses in canonical text; `tls` replaces the certificate
        authorities of the system.
        """
        self._resolver = GuardedResolver(resolver, may_dial)
        self._may_dial = may_dial
        self._tls = tls or ssl.create_default_context()
        self._session: aiohttp.ClientSession | None = None
        self._opened_at = 0.0
        self._retiring: set[asyncio.Task[None]] = set()

    @classmethod
    def from_settings(cls, settings: Settings, resolver: Resolver) -> "HttpClient":
        """Create a client for public addresses only, unless the settings or local mode allow all addresses."""
        every = may_dial_private(settings, settings.allow_private_webhooks)
        return cls(resolver, may_dial=any_address if every else is_public)

    async def post(
        self,
        url: yarl.URL,
        body: bytes,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        max_bytes: int,
        max_header_chars: int = 0,
    ) -> HttpReply | HttpFailure:
        """Send one POST and read at most `max_bytes` of the response; `timeout_s` covers DNS to the last byte.

        The reply holds the first `max_header_chars` characters of the response's header lines.
        A pooled connection that the server has closed is replaced by a new one within the same time limit. Once the
        status line has arrived, no fault in what follows it (framing, early close) makes a failure, only the time
        limit: the server has decided, and another try would repeat its work.
        """
        exchange = _Exchange()
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(MAX_STALE):
                    exchange = _Exchange()
                    _exchange.set(exchange)
                    try:
                        return await self._reply(url, body, headers, max_bytes, max_header_chars)
                    except (
                        aiohttp.ClientResponseError,
                        aiohttp.ServerDisconnectedError,
                        aiohttp.ClientOSError,
                    ) as error:
                        if exchange.status is not None:
                            return HttpReply(exchange.status, b"")
                        if exchange.dialled or isinstance(error, aiohttp.ClientConnectorError):
                            raise
                return HttpFailure("connect", "the server had closed all pooled connections")
        except TimeoutError:
            late = "there was no response" if exchange.status is None else "the response was incomplete"
            return HttpFailure("timeout", f"{late} within {timeout_s:g} s", exchange.status)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _failure(error)

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        if session is not None:
            await session.close()

    async def _reply(
        self, url: yarl.URL, body: bytes, headers: Mapping[str, str], max_bytes: int, max_header_chars: int
    ) -> HttpReply:
        response = await self._open().request("POST", url, data=body, headers=headers, allow_redirects=False)
        try:
            content = await _beginning(response.content, max_bytes)
        except (aiohttp.ClientError, OSError):  # cut off in the middle: the status is known
            content = b""
        finally:
            reusable = response.content.at_eof() and not _announces_forbidden_body(response)
            response.release() if reusable else response.close()
        lines = _header_lines(response.raw_headers, max_header_chars)
        return HttpReply(response.status, content, lines, response.headers.get("Retry-After"))

    def _open(self) -> aiohttp.ClientSession:
        now = asyncio.get_running_loop().time()
        if self._session is None or now - self._opened_at > SESSION_S:
            if self._session is not None:
                task = asyncio.create_task(_retire(self._session))
                self._retiring.add(task)
                task.add_done_callback(self._retiring.discard)
            self._session = self._new_session()
            self._opened_at = now
        return self._session

    def _new_session(self) -> aiohttp.ClientSession:
        connector = _Connector(
            resolver=self._resolver,
            use_dns_cache=False,  # the resolver has its own
            socket_factory=socket_factory(self._may_dial),
            ssl=self._tls,
            limit=0,  # the callers limit the requests in flight
            keepalive_timeout=KEPT_IDLE_S,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=_SKIPPED,
            read_bufsize=4_096,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
        )


class _Exchange:
    """Record of a request in progress: whether it opened a connection, and the status of its final reply once known."""

    __slots__ = ("dialled", "status")

    def __init__(self) -> None:
        self.dialled = False
        self.status: int | None = None


_exchange: ContextVar[_Exchange] = ContextVar("exchange")


class _Connector(aiohttp.TCPConnector):
    """A connector that records whether a request opened a connection, and the status line of its answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast("partial[ResponseHandler]", partial(_StatusReader, loop=self._loop))

    async def _create_connection(self, *arguments: Any) -> Any:
        _exchange.get().dialled = True
        return await super()._create_connection(*arguments)


class _StatusReader(ResponseHandler):
    """aiohttp's protocol, which also records the status of the answer before parsing it.

    When a fault arrives in the same segment as the head, such as a body behind a 204, aiohttp's parser reports only the
    fault and loses the head.
    """

    _answered: _Exchange | None = None  # the exchange whose status line is awaited
    _seen = b""

    def set_response_params(self, **parameters: Any) -> None:
        """Begin to wait for the answer to a request."""
        self._answered, self._seen = _exchange.get(), b""
        super().set_response_params(**parameters)

    def data_received(self, data: bytes) -> None:
        """Look for the status line, then parse."""
        if self._answered is not None:
            self._seen = _after_interim(self._seen + data)
            if (line := _status_line(self._seen)) is not None and not line[1].startswith(b"1"):
                self._answered.status = int(line[1])
                self._answered, self._seen = None, b""
        super().data_received(data)


def _after_interim(octets: bytes) -> bytes:
    """Return what follows the complete interim answers (RFC 9110 15.2) at the beginning."""
    octets = octets.lstrip(b"\r\n")
    while (line := _status_line(octets)) is not None and line[1].startswith(b"1"):
        end = _head_end(octets, line.end() - 2)
        if end is None:
            break
        octets = octets[end.end() :]
    return octets


def _announces_forbidden_body(response: aiohttp.ClientResponse) -> bool:
    """Return True for a 204 or 304 that announces a body: its octets would be read as the next answer."""
    announced = response.headers.get("Content-Length", "0").strip() != "0" or "Transfer-Encoding" in response.headers
    return response.status in (204, 304) and announced


class GuardedResolver(AbstractResolver):
    """A resolver for aiohttp that queries our resolver and removes addresses that are not allowed."""

    def __init__(self, resolver: Resolver, may_dial: Callable[[str], bool]) -> None:
        self._resolver = resolver
        self._may_dial = may_dial

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - both are asked for
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a name. Raises OSError if there is none."""
        name = host.removesuffix(".").lower()
        if name == "localhost" or name.endswith(".localhost"):
            found, problem = list(_LOOPBACK), ""
        else:
            found, problem = await self._look_up(name)
        allowed = [address for address in found if self._may_dial(address)][:MAX_ADDRESSES]
        if not allowed and found:  # does not name the address: the owner of the URL must not learn about our network
            raise AddressNotAllowed(f"{name} does not resolve to a public address")
        if not allowed:
            raise OSError(problem or f"{name} has no address")
        return [_result(host, address, port) for address in allowed]

    async def close(self) -> None:
        """Do nothing: the resolver belongs to the caller."""

    async def _look_up(self, name: str) -> tuple[list[str], str]:
        four, six = await asyncio.gather(self._resolver.addresses(name, "A"), self._resolver.addresses(name, "AAAA"))
        problems = [one.detail for one in (four, six) if isinstance(one, TemporaryFailure)]
        return [*_values(four), *_values(six)], problems[0] if problems else ""


def socket_factory(may_dial: Callable[[str], bool]) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Return a `socket_factory` for aiohttp that checks every address right before the connection, however it was
    found.
    """

    def make(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, place = address
        if not may_dial(str(place[0])):
            raise AddressNotAllowed(f"{place[0]} is not a public address")
        return socket.socket(family, kind, protocol)

    return make


def resolver_for(settings: Settings) -> Resolver:
    """Return a resolver of the configured name servers, else of the system's.

    In local mode, our own responder resolves every name to this machine, which is right for mail that must not leave
    it. Webhooks go to their real address, even from a laptop.
    """
    own = (HostPort("127.0.0.1", settings.dns_port),)
    if settings.dns_servers and not (settings.delivery == "local" and settings.dns_servers == own):
        return Resolver(settings.dns_servers)
    return Resolver(system_servers())


def _header_lines(raw: Iterable[tuple[bytes, bytes]], max_chars: int) -> str:
    """Return whole lines of `Name: value` with at most `max_chars` characters, invalid UTF-8 replaced."""
    lines: list[str] = []
    for name, value in raw if max_chars else ():
        line = f"{name.decode('utf-8', 'replace')}: {value.decode('utf-8', 'replace')}"
        max_chars -= len(line) + 1
        if max_chars < -1:
            break
        lines.append(line)
    return "\n".join(lines)


async def _beginning(stream: aiohttp.StreamReader, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = max_bytes
    while left > 0 and (part := await stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


async def _retire(session: aiohttp.ClientSession) -> None:
    """Close a session after its requests have ended, or at once on cancellation."""
    try:
        await asyncio.sleep(RETIRE_S)
    finally:
        await session.close()


def any_address(_address: str) -> bool:
    """Accept every address, as `may_dial` where private addresses are allowed."""
    return True


def _values(answer: Answered[str]) -> Iterable[str]:
    return answer.values if isinstance(answer, Records) else ()


def _result(host: str, address: str, port: int) -> ResolveResult:
    version = ip_address(address).version
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)


def _failure(error: Exception) -> HttpFailure:
    """Translate an exception of aiohttp, the socket or TLS."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text = _words(cause)
    if isinstance(cause, AddressNotAllowed):
        return HttpFailure("refused_address", text)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return HttpFailure("dns", text)
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)) or isinstance(cause, ssl.SSLError):
        return HttpFailure("tls", _words(getattr(error, "certificate_error", cause)))
    if isinstance(error, (aiohttp.InvalidURL, ValueError)):
        return HttpFailure("url", "the URL can't be used")
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, OSError)):
        return HttpFailure("connect", text or "the connection was closed without a response")
    return HttpFailure("protocol", f"the response is not HTTP: {text}")


def _words(error: object) -> str:
    """Return the text of an error as one printable line."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without a response"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    message = getattr(error, "message", None) or str(error)
    line = "".join(letter if letter.isprintable() else " " for letter in str(message))
    return line.strip()[:200]
