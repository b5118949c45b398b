"""Decode bodies and query strings to typed Structs, or raise a 400 that names the field at fault."""

import codecs
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

import falcon.asgi
import msgspec
from msgspec import Struct

from api.http import value_limits
from engine.base import validation
from engine.base.errors import ErrorType, Refusal, invalid, shown
from engine.base.suggest import hint

MAX_PARAMETERS = 100  # of a query string, which has up to 64 KB
_QUERY = "waybill.query"
JSON_TYPES = ("application/json", "text/json")
_SEND_UTF8 = "Send UTF-8 without a byte order mark; in PowerShell as `-Body ([Text.Encoding]::UTF8.GetBytes($json))`."
LARGE_BYTES = value_limits.SMALL_BYTES  # counting and decoding more takes over a millisecond: off the event loop


def check_media_type(request: falcon.asgi.Request, types: Sequence[str] = JSON_TYPES) -> None:
    """Raise 415 unless the body is plain and of one of `types`; an absent Content-Type counts as the first."""
    declared = request.content_type
    if declared and declared.partition(";")[0].strip().lower() not in types:
        wanted = types[0] if types is JSON_TYPES else " or ".join(types)
        raise Refusal(ErrorType.UNSUPPORTED_MEDIA_TYPE, f"Send the body as {wanted}.")
    if (request.get_header("Content-Encoding") or "identity").strip().lower() != "identity":
        raise Refusal(ErrorType.UNSUPPORTED_MEDIA_TYPE, "Send the body as it is, without Content-Encoding.")


def names(body: bytes) -> frozenset[str]:
    """Return the names in a body that `decode_body` has decoded: what was given, as opposed to what has a default."""
    return frozenset(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))


def decode_body(body: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Return the body as the operation's Struct. Raises a 400 that names the field at fault."""
    if len(body) > value_limits.SMALL_BYTES:
        _check_values(body, decoder.type)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise refusal_of(error, decoder.type, _plain(body, error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
        fault = _encoding_fault(bytes(body)) or f"The body is not valid JSON: {_short(error)}"
        raise invalid("body", fault) from None


def _check_values(body: bytes | msgspec.Raw, shape: Any) -> None:
    limit = value_limits.values_allowed(shape)
    if value_limits.has_more(bytes(body), limit):
        raise invalid(
            "body",
            f"The body has more than {limit:,} entries in its objects and arrays, which no valid request has. "
            "Send less in one request.",
        )


def decode_query(request: falcon.asgi.Request, shape: type[Struct] | None, *, lenient: bool = False) -> Any:
    """Return the query string as the operation's Struct; an unknown or repeated parameter is a 400 that names it.

    `lenient`: ignore unknown parameters.
    """
    names = _parameters(shape)
    values: dict[str, Any] = {}
    for name, value in _pairs(request):
        if name not in names:
            if lenient:
                continue
            raise invalid(shown(name), f"Unknown query parameter `{shown(name)}`.{hint(name, names)}")
        if names[name]:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise invalid(name, f"The query parameter {name!r} is given twice. Send it once.")
        else:
            values[name] = value
    if shape is None:
        return None
    try:
        query = msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise refusal_of(error, shape, values) from None
    for field in msgspec.structs.fields(shape):
        # The lax conversion reads the word null as an absent value; an ignored filter would show too much.
        if field.encode_name in values and getattr(query, field.name) is None:
            raise invalid(field.encode_name, f"`{field.encode_name}` is null. Leave it out instead.")
    return query


def refusal_of(error: msgspec.ValidationError, shape: Any, given: object) -> Refusal:
    """Return the 400 for a validation error: the field at fault, and the values that it accepts."""
    fault = validation.fault_of(error, shape, given)
    field = fault.path or "body"
    return invalid(field, fault.sentence(field))


def set_query_aside(scope: MutableMapping[str, Any]) -> None:
    """Move the query string of an ASGI scope to where `decode_query` finds it: Falcon would parse all of it for every
    request, and a query of 30,000 parameters takes 18 ms."""
    scope[_QUERY] = scope["query_string"]
    scope["query_string"] = b""


def query_text(request: falcon.asgi.Request) -> str:
    """Return the query string as sent."""
    query: bytes = request.scope[_QUERY]
    return query.decode("utf-8", "replace")


def query_parameter(request: falcon.asgi.Request, name: str) -> str | None:
    """Return the first parameter `name` of the query, None if there is none. Raises the 400 for an unreadable query."""
    return next((value for found, value in _pairs(request) if found == name), None)


def _pairs(request: falcon.asgi.Request) -> Iterable[tuple[str, str]]:
    query: bytes = request.scope[_QUERY]
    if not query:
        return ()
    if query.count(b"&") >= MAX_PARAMETERS:
        raise invalid("query", f"A query string may have at most {MAX_PARAMETERS} parameters.")
    try:
        return parse_qsl(query.decode(), keep_blank_values=True, strict_parsing=False, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise invalid("query", "The query string is not valid UTF-8 percent-encoding.") from None


@lru_cache(maxsize=256)
def _parameters(shape: type[Struct] | None) -> Mapping[str, bool]:
    """Return the parameter names, each with True if it may be repeated."""
    if shape is None:
        return {}
    return {field.encode_name: _is_list(field.type) for field in msgspec.structs.fields(shape)}


def _is_list(kind: Any) -> bool:
    """Return True for a list, also for one that is optional or annotated."""
    return get_origin(kind) is list or any(map(_is_list, get_args(kind)))


def _plain(body: bytes | msgspec.Raw, error: msgspec.ValidationError) -> object:
    """Return the body as plain data if the error does not name the array entry at fault itself."""
    if "[...]" not in str(error):
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None  # the body is not valid JSON after the fault


def _encoding_fault(body: bytes) -> str | None:
    """Return the sentence about a body that is empty or not UTF-8: its likely encoding, and how to send UTF-8; None for
    any other.

    Windows PowerShell 5.1 sends text as Latin-1 and writes files with a byte order mark or as UTF-16.
    """
    if not body:
        return "The body is empty; send a JSON object."
    if body.startswith(codecs.BOM_UTF8):
        return "The body begins with a byte order mark (the bytes EF BB BF). Send UTF-8 without it."
    if body.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) or body[:4].count(0) > 2:  # UTF-16 has two
        return f"The body seems to be UTF-32: it begins with the bytes {body[:4].hex(' ').upper()}. {_SEND_UTF8}"
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or (len(body) > 1 and 0 in body[:2]):
        return f"The body seems to be UTF-16: it begins with the bytes {body[:2].hex(' ').upper()}. {_SEND_UTF8}"
    try:
        body.decode()
    except UnicodeDecodeError as error:
        octet = body[error.start]
        letter = bytes([octet]).decode("cp1252", "ignore")
        shown = f", {letter!r} in Latin-1," if letter.isprintable() and letter else ""
        return (
            f"The body is not UTF-8; it seems to be Latin-1 or Windows-1252: byte {error.start} is"
            f" {octet:02X}{shown} which UTF-8 does not allow there. {_SEND_UTF8}"
        )
    return None


def _short(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).removeprefix("JSON is malformed: ")[:200]
