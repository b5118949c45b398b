"""From bytes and query strings to typed Structs, or a 400 that names the field.

Bodies are read with a bound, a deadline and a minimum rate; the bytes that all requests of a worker hold at
once are bounded too.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

import falcon.asgi
import msgspec
from msgspec import Struct

from api.http.stream import Connection
from engine.base import shapes
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.settings import Settings
from engine.base.suggest import MAX_NAME, hint
from engine.store.deadlines import within

LARGE_BYTES = 1024 * 1024  # decoding more takes over a millisecond: off the event loop
SWALLOWED_BYTES, SWALLOW_S = 16 * 1024 * 1024, 3.0
GRACE_S = 5.0  # before the minimum rate is asked for


class Inflight:
    """The request bytes one worker holds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def take(self, count: int) -> None:
        """Reserve, or refuse with 503: memory is bounded, whoever sends."""
        if self.held + count > self._most:
            raise Refusal(
                ErrorType.UNAVAILABLE,
                "The server is busy receiving large requests. Nothing was accepted; try again shortly.",
                retry_after_s=2,
            )
        self.held += count

    def give(self, count: int) -> None:
        """Release."""
        self.held -= count


async def read_body(connection: Connection, declared: int | None, settings: Settings, inflight: Inflight) -> bytes:
    """The whole body, of `declared` octets where its client says so.

    Its bytes stay counted in `inflight` until the caller gives them back. Raises 413 above the bound, 400 when it comes
    too slowly.
    """
    limit = settings.max_request_bytes
    chunks: list[bytes] = []
    size = 0
    started = time.monotonic()
    try:
        _check_size(declared or 0, limit)
        while declared is None or size < declared:
            with within(_patience(settings, size, time.monotonic() - started)):
                chunk = await connection.more()
            if not chunk:
                break
            size += len(chunk)
            _check_size(size, limit)
            inflight.take(len(chunk))
            chunks.append(chunk)
    except Refusal:
        inflight.give(sum(map(len, chunks)))
        await _swallow(connection)
        raise
    except TimeoutError:
        inflight.give(sum(map(len, chunks)))
        raise invalid("body", "The request body came too slowly.") from None
    except BaseException:
        inflight.give(sum(map(len, chunks)))
        raise
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _swallow(connection: Connection) -> None:
    """Read on for a moment after a refusal: a client that still writes hears it only when its writing gets through."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SWALLOW_S):
            size = 0
            while (chunk := await connection.more()) and size <= SWALLOWED_BYTES:
                size += len(chunk)


def _patience(settings: Settings, size: int, elapsed: float) -> float:
    """Seconds the next chunk may take: until the deadline, or until the mean rate falls below the minimum."""
    allowed = settings.body_deadline_s
    if settings.body_min_bytes_per_s:
        allowed = min(allowed, GRACE_S + size / settings.body_min_bytes_per_s)
    return max(0.0, allowed - elapsed)


def check_media_type(request: falcon.asgi.Request) -> None:
    """Bodies are JSON as it is; an absent Content-Type is taken as JSON."""
    declared = request.content_type
    if declared and declared.partition(";")[0].strip().lower() not in {"application/json", "text/json"}:
        raise Refusal(ErrorType.UNSUPPORTED_MEDIA_TYPE, "Send the body as application/json.")
    if (request.get_header("Content-Encoding") or "identity").strip().lower() != "identity":
        raise Refusal(ErrorType.UNSUPPORTED_MEDIA_TYPE, "Send the body as it is, without Content-Encoding.")


def decode_body(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The body as the operation's Struct."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise refusal_of(error, decoder.type, _plain(body, error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise invalid("body", f"The body is not valid JSON: {_short(error)}") from None


def decode_query(request: falcon.asgi.Request, shape: type[Struct] | None, *, lenient: bool = False) -> Any:
    """The query string as the operation's Struct; unknown and repeated parameters are refused by name.

    `lenient`: unknown ones are passed over.
    """
    names = _parameters(shape)
    values: dict[str, Any] = {}
    for name, value in _pairs(request):
        if name not in names:
            if lenient:
                continue
            raise invalid(name, f"Unknown query parameter `{name[:MAX_NAME]}`.{hint(name, names)}")
        if names[name]:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise invalid(name, f"The query parameter {name!r} is given twice.")
        else:
            values[name] = value
    if shape is None:
        return None
    try:
        query = msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise refusal_of(error, shape, values) from None
    for field in msgspec.structs.fields(shape):
        # The lax reading takes the word null for an absent value, and a filter that is not heard shows too much.
        if field.encode_name in values and getattr(query, field.name) is None:
            raise invalid(field.encode_name, f"`{field.encode_name}`: leave it out instead of giving null.")
    return query


def refusal_of(error: msgspec.ValidationError, shape: Any, given: object) -> Refusal:
    """A validation error of plain data as a refusal that names the field and says what it must be."""
    fault = shapes.fault_of(error, shape, given)
    field = fault.path or "body"
    return invalid(field, fault.sentence(field))


def _pairs(request: falcon.asgi.Request) -> Iterable[tuple[str, str]]:

    try:
        return parse_qsl(request.query_string, keep_blank_values=True, strict_parsing=False, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise invalid("query", "The query string is not valid UTF-8 percent-encoding.") from None


@lru_cache(maxsize=256)
def _parameters(shape: type[Struct] | None) -> Mapping[str, bool]:
    """Parameter names, and whether each may repeat."""
    if shape is None:
        return {}
    return {
        field.encode_name: any(get_origin(part) is list for part in (field.type, *get_args(field.type)))
        for field in msgspec.structs.fields(shape)
    }


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise Refusal(ErrorType.PAYLOAD_TOO_LARGE, f"A request may have {limit} bytes at the most.", limit=limit)


def _plain(body: bytes, error: msgspec.ValidationError) -> object:
    """The body as plain data where the error does not name the entry at fault itself."""
    if "[...]" not in str(error):
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None  # something behind the fault is no JSON


def _short(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).removeprefix("JSON is malformed: ")[:200]
