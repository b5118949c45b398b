"""Check the head of a request before anything of its body is read, and answer it at once where it can't be served.

`api.app` calls this for every request. It covers what the HTTP server passes on although two readers of the same octets
could understand them differently (RFC 9112 11.2, request smuggling); ops/decisions/0006 lists what the server itself
answers.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from api.http.dispatch import REQUEST_ID, SECURITY_HEADERS
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.store import metrics

MAX_LINGER_S, MAX_IDLE_S = 3.0, 0.3
MAX_LINGER_BYTES, MAX_LINGER_PIECES = 64 * 1024 * 1024, 4096  # a piece costs the worker several microseconds
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_CHECKED = frozenset({b"host", b"transfer-encoding", b"content-length", b"upgrade"})
# RFC 9110 7.2 and RFC 3986 3.2.2: a registered name, an IPv4 address or an IP literal, and a port.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = structlog.get_logger("api")


def check(scope: Mapping[str, Any], max_body_bytes: int) -> None:
    """Raise Refusal for a head that is ambiguous, asks for another protocol, or declares a body that is too large."""
    if scope["method"] not in _METHODS:
        raise invalid("method", f"{_shown(scope['method'])} is not a method that this API supports.")
    seen: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _CHECKED:
            if name in seen:
                raise invalid(_named(name), f"The request has more than one `{_named(name)}` field. Send it once.")
            seen[name] = value
    _check_host(seen.get(b"host", b""), scope["http_version"])
    if len(seen) > 1:
        _check_body(seen, max_body_bytes)


def _check_host(host: bytes, version: str) -> None:
    """RFC 9112 3.2: a request of HTTP/1.1 has exactly one valid Host."""
    if _HOST.fullmatch(host) or (not host and version != "1.1"):
        return
    if not host:
        raise invalid("Host", "`Host` is missing or empty. Name the host that the request is for (RFC 9112 3.2).")
    raise invalid("Host", f"`Host` is {_shown(host.decode('latin-1'))}, which is not a host name and an optional port.")


def _check_body(seen: Mapping[bytes, bytes], max_body_bytes: int) -> None:
    coding = seen.get(b"transfer-encoding")
    if coding is not None and coding.strip().lower() != b"chunked":
        raise invalid(
            "Transfer-Encoding",
            f"`Transfer-Encoding` is {_shown(coding.decode('latin-1'))}; only `chunked` alone is supported. Send the "
            "body in chunks or with `Content-Length`.",
        )
    declared = int(seen.get(b"content-length", b"0"))
    if declared > max_body_bytes:
        raise Refusal(
            ErrorType.PAYLOAD_TOO_LARGE,
            f"The request declares a body of {declared:,} bytes; at most {max_body_bytes:,} are accepted. Send less in"
            " one request.",
            limit=max_body_bytes,
        )
    if b"websocket" in seen.get(b"upgrade", b"").lower():
        raise invalid(
            "Upgrade",
            "This API has no WebSocket. Follow events as they happen with `GET /v1/messages/tail` (server-sent "
            "events), without `Upgrade`.",
        )


async def answer(refusal: Refusal, receive: Receive, send: Send, docs: str) -> None:
    """Send the error envelope for a request whose body is not wanted, and close the connection.

    `docs` is the address of the page that explains the errors.

    The answer leaves at once, except for its last octet. What the client still writes is read and dropped for a moment
    before that one follows: the server closes behind it, and a connection that is closed with unread octets is reset,
    so that a client that writes may never see the answer (RFC 9112 9.6).
    """
    request = ids.encode(ids.uuid7())
    metrics.TALLY.add(metrics.REQUESTS, "unrouted", str(refusal.status))
    _log.info("request refused", request=request, operation="unrouted", type=refusal.kind.value)
    body = msgspec.json.encode(refusal.envelope(docs))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % refusal.retry_after_s))
    headers += [(name.lower().encode(), value.encode()) for name, value in ((REQUEST_ID, request), *SECURITY_HEADERS)]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body[:-1], "more_body": True})
    await _linger(receive)
    await send({"type": "http.response.body", "body": body[-1:]})


async def _linger(receive: Receive) -> None:
    dropped = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_LINGER_S):
            for _ in range(MAX_LINGER_PIECES):
                async with asyncio.timeout(MAX_IDLE_S):
                    event = await receive()
                dropped += len(event.get("body", b""))
                if dropped > MAX_LINGER_BYTES or not event.get("more_body", False):  # its end, or the client has gone
                    return


def _named(name: bytes) -> str:
    return name.decode("ascii").title()


def _shown(text: str) -> str:
    return f"`{text}`" if len(text) <= 60 else f"`{text[:60]}…`"
