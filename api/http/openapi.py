"""Generate the OpenAPI 3.1 document from the operations."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from api.http import path_texts, property_texts
from api.http.auth import CSRF_HEADER
from api.http.operation import Access, LimitedKeys, Operation
from api.http.operation_names import operation_name
from engine.base.errors import REGISTRY, ErrorType, Refusal
from engine.base.settings import MEBIBYTE, Settings
from engine.people.sessions.rules import COOKIE

_PARAMETER = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"
VERSION = "1.0.0"
DESCRIPTION = """\
Waybill stores, signs and delivers transactional email, and records every event of a message. The API ignores the \
header `Idempotency-Key`; use the body field `idempotencyKey`.

**Paths.** The API splits a path at its slashes, then decodes each segment once. Percent-encode each parameter as a \
whole: `/` as `%2F` and `%` as `%25`. `+` means itself. A path that is not percent-encoded UTF-8 is a 404.

**Errors.** Every error of the API has a JSON body with an object `error`, which contains `type`, `message` and \
`docs`. A request with ambiguous or broken framing gets such an error of type `invalid_request`, and the API closes \
its connection: `Host` missing in HTTP/1.1, malformed or repeated, a `Transfer-Encoding` other than `chunked` alone, \
a request target without a path, an unknown method, an upgrade to a WebSocket, a malformed chunk, and a body that ends \
early. A body whose declared size is above the limit is a 413 before the API reads any of it.

**Sessions.** The console and other pages of this origin may use the cookie of a signed-in person instead of a key. \
Every change then needs the header `X-CSRF-Token` with the `csrfToken` of `GET /v1/auth/me`; a key needs none.

**Rate limits.** Each API key has a limit, each signed-in person has one, and so has each network without a \
credential. The response to a counted request has `RateLimit-Policy` (`"key";q=400;w=2`: 400 requests at once, \
refilled within 2 seconds) and `RateLimit` (`"key";r=399;t=1`: 399 left, all of them again in 1 second), after \
draft-ietf-httpapi-ratelimit-headers-10. `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` have the \
same numbers. An empty limit is a 429 `rate_limited` with `Retry-After`.

**Times.** Responses to a valid key or session have `Server-Timing: total;dur=4.2`: milliseconds from the request's \
head to the response's. `GET /v1/requests` lists them for seven days.

**Browsers.** A page of another origin may read the API with a key that lists the origin in `allowedOrigins` (keys \
with read scopes alone). Every path responds to a preflight of a GET or HEAD request with the headers \
`Authorization` and `Last-Event-ID`; the response itself has `Access-Control-Allow-Origin` only for an origin of its \
key. Cookies are never allowed across origins.

**Responses without that object.** The HTTP server in front of the API responds to some requests itself, with an empty \
body, and closes the connection:
- 400: a malformed request line or header line (a version of HTTP/1 other than 1.0 and 1.1, white space before a \
colon, a folded line, NUL or a bare CR, octets that a URL must not contain); a `Content-Length` that is not a number, \
is a list, or is given twice with different values; a `Transfer-Encoding` that does not end in `chunked`, or any in \
HTTP/1.0.
- 414: a request target longer than 65,534 bytes.
- 431: more than 100 header fields, a head that is too large (64 KiB always pass, 128 KiB never), or a \
`Content-Length` of 18446744073709551614 or 18446744073709551615.

The server closes the connection without a response for HTTP/2 (the API supports HTTP/1.0 and 1.1), for a head that is \
not complete within 30 s, after 30 s without a request, and if the client shuts down its sending side before it has \
the response.

The server accepts, as RFC 9112 allows: lines that end in a bare LF, an absolute request target (which also replaces a \
missing `Host`), equal `Content-Length` fields, and `Content-Length` together with `Transfer-Encoding: chunked`, of \
which the latter applies and the connection is closed afterwards. It ignores trailers and chunk extensions of less \
than 16 KiB, and an `Expect` other than `100-continue`.
"""
_ANSWER_HEADERS = {
    name: {"$ref": f"#/components/headers/{name}"}
    for name in ("RateLimit", "RateLimit-Policy", "Server-Timing", "X-Request-Id")
}
_HEADERS = {
    "RateLimit": {"description": "What is left of the rate limit", "schema": {"type": "string"}},
    "RateLimit-Policy": {"description": "The rate limit that counted the request", "schema": {"type": "string"}},
    "Server-Timing": {"description": "Milliseconds until the response", "schema": {"type": "string"}},
    "X-Request-Id": {"description": "The request in logs and in `GET /v1/requests`", "schema": {"type": "string"}},
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}


_SECURITY: dict[Access, list[dict[str, list[str]]]] = {
    Access.NONE: [],
    Access.KEY: [{"apiKey": []}, {"session": []}],
    Access.SESSION: [{"session": []}],
    Access.PLATFORM_KEY: [{"apiKey": []}],
}


def document(
    operations: Iterable[Operation],
    settings: Settings,
    *,
    webhooks: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the document as JSON, with the limits of these settings. `webhooks`: the posts of the service by event
    type.
    """
    listed = list(operations)
    types = [part for one in listed for part in _types_of(one) if part is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    property_texts.describe(components)
    _suit_generators(components)
    paths: dict[str, dict[str, Any]] = {}
    for one in listed:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_type, components, settings)
    queries = {_name(by_type[id(one.query)]) for one in listed if one.query is not None}  # described as parameters
    components = {name: shape for name, shape in components.items() if name not in queries}
    components["Error"] = _error_schema()
    made = orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Waybill",
                "version": VERSION,
                "description": DESCRIPTION,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": settings.public_url}],
            "tags": [{"name": tag} for tag in sorted({one.tag for one in listed})],
            "paths": paths,
            "webhooks": webhooks or {},
            "components": {
                "schemas": components,
                "headers": _HEADERS,
                "securitySchemes": {
                    "apiKey": {"type": "http", "scheme": "bearer", "bearerFormat": "svc_live_…"},
                    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
                },
            },
        }
    )
    for place, text in _values_of(settings).items():
        made = made.replace(place, text.encode())
    return made


def _suit_generators(components: dict[str, Any]) -> None:
    """Write what generators of clients misread in another way.

    They take `default: null` for a value that is always there, and know choices of texts and numbers alone.
    """
    for schema in components.values():
        for shape in schema.get("properties", {}).values():
            if shape.get("default", ...) is None:
                del shape["default"]
            if shape.get("enum") == [True]:
                del shape["enum"]
                shape |= {"type": "boolean", "const": True}


def _values_of(settings: Settings) -> dict[bytes, str]:
    """Return what stands in descriptions for values of the settings."""
    return {
        b"<give_up_s>": f"{settings.give_up_s / 3600:g} hours",
        b"<max_message_bytes>": f"{settings.max_message_bytes / MEBIBYTE:g} MiB",
    }


def _types_of(one: Operation) -> tuple[Any, ...]:
    errors = None if one.errors is None else one.errors.body
    return one.request, *one.request_parts, one.query, one.reply, *one.other_replies, errors


def _operation(
    one: Operation, by_type: dict[int, Any], components: dict[str, Any], settings: Settings
) -> dict[str, Any]:
    limit = one.body_limit(settings.max_request_bytes)
    described: dict[str, Any] = {
        "operationId": operation_name(one.method, one.path),
        "tags": [one.tag],
        "summary": one.summary,
        "security": _SECURITY[one.access],
        "responses": _responses(one, by_type, limit),
        "x-max-body-bytes": limit,
    }
    described["description"] = " ".join(text for text in (one.note, _needs(one)) if text)
    if parameters := _parameters(one, by_type, components):
        described["parameters"] = parameters
    if body := _body(one, by_type, limit):
        described["requestBody"] = body
    return described


def _parameters(one: Operation, by_type: dict[int, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            **path_texts.text_of(one, name),
        }
        for name in _PARAMETER.findall(one.path)
    ]
    if one.query is not None:
        parameters += _query_parameters(one.query, by_type, components)
    parameters += [
        {
            "name": field.name,
            "in": "header",
            "required": False,
            "description": field.description,
            "schema": {"type": "string", "pattern": field.pattern},
        }
        for field in one.headers
    ]
    if one.needs_csrf:
        parameters.append(
            {
                "name": CSRF_HEADER,
                "in": "header",
                "required": one.access is Access.SESSION,
                "description": "The session's CSRF token; an API key needs none.",
                "schema": {"type": "string"},
            }
        )
    return parameters


def _body(one: Operation, by_type: dict[int, Any], limit: int) -> dict[str, Any] | None:
    if one.request is not None:
        return {
            "description": f"At most {limit} bytes.",
            "required": not one.body_is_optional,
            "content": {"application/json": {"schema": by_type[id(one.request)]}},
        }
    if one.body_types:
        return {
            "description": f"At most {limit} bytes.",
            "required": True,
            "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in one.body_types},
        }
    if one.raw_body:
        return {
            "description": f"At most {limit} bytes; a signature covers them as they are.",
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    return None


_LIMITED_KEYS: dict[LimitedKeys, str] = {
    LimitedKeys.FREE: "",
    LimitedKeys.OWN: "Keys limited to domains or streams use it for these alone: all else is unknown to them",
    LimitedKeys.OWN_DOMAINS: "Keys limited to domains use it for these alone; for keys limited to streams a 403",
    LimitedKeys.OWN_STREAMS: "Keys limited to streams use it for these alone; for keys limited to domains a 403",
    LimitedKeys.WHOLE_ACCOUNT: "For keys limited to domains or streams a 403",
}


_CALLERS: dict[Access, str] = {
    Access.NONE: "Needs no API key and no session",
    Access.KEY: "For API keys and signed-in people",
    Access.SESSION: "For signed-in people; a 403 for API keys",
    Access.PLATFORM_KEY: "For API keys of the platform account",
}


def _needs(one: Operation) -> str:
    scopes = " or ".join(f"`{scope}`" for scope in one.scopes)
    words = [f"Scope: {scopes}" if scopes else _CALLERS[one.access]]
    if one.limited_keys is not None and _LIMITED_KEYS[one.limited_keys]:
        words.append(_LIMITED_KEYS[one.limited_keys])
    if one.for_operator:
        words.append("For operators of the installation; a 404 for others")
    if one.role is not None:
        words.append(f"Role: `{one.role.value}` or higher")
    return ". ".join(words)


def _query_parameters(query: type[Struct], by_type: dict[int, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components[_name(by_type[id(query)])]
    required = set(schema.get("required", ()))
    found = []
    for name, shape in schema.get("properties", {}).items():
        kept = {key: value for key, value in shape.items() if not (key == "default" and value is None)}
        if "anyOf" in kept:  # a parameter is present or absent, never null
            choices = [choice for choice in kept.pop("anyOf") if choice != {"type": "null"}]
            kept |= choices[0] if len(choices) == 1 else {"anyOf": choices}
        found.append({"name": name, "in": "query", "required": name in required, "schema": kept})
    return found


def _name(reference: Mapping[str, str]) -> str:
    return reference["$ref"].rsplit("/", 1)[-1]


def _responses(one: Operation, by_type: dict[int, Any], limit: int) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status in (one.success, *one.also):
        answer: dict[str, Any] = {"description": "Success", "headers": _ANSWER_HEADERS}
        if one.reply is None and one.reply_type == "application/json" and status != 204:
            answer["content"] = {"application/json": {"schema": {"type": "object"}}}
        elif one.reply is not None and one.reply_type != "application/json":
            # OpenAPI 3.1 has no keyword for the records of a stream; generators may read this extension.
            answer["content"] = {
                one.reply_type: {"schema": {"type": "string"}, "x-item-schema": by_type[id(one.reply)]}
            }
        elif one.reply is not None:
            replies = [by_type[id(kind)] for kind in (one.reply, *(one.other_replies if status in one.also else ()))]
            answer["content"] = {
                "application/json": {"schema": replies[0] if len(replies) == 1 else {"anyOf": replies}}
            }
        elif one.reply_type != "application/json":
            answer["content"] = {one.reply_type: {}}
        if one.other_reply_types:
            answer["content"] |= {kind: {"schema": {"type": "string"}} for kind in one.other_reply_types}
        answers[str(status)] = answer
    by_status: dict[int, list[ErrorType]] = {}
    for status, kind in _statuses(one):
        by_status.setdefault(status, []).append(kind)
    form = {"$ref": "#/components/schemas/Error"} if one.errors is None else by_type[id(one.errors.body)]
    for status, kinds in sorted(by_status.items()):
        answers[str(status)] = {
            **({"headers": _RETRY_AFTER} if status in {429, 503} else {}),
            "description": ", ".join(f"`{kind.value}`" for kind in kinds) + _bound_of(kinds, limit),
            "content": {
                "application/json": {
                    "schema": {
                        "allOf": [
                            form,
                            {"properties": {"error": {"properties": {"type": {"enum": [k.value for k in kinds]}}}}},
                        ]
                    }
                }
            },
        }
    return answers


def _statuses(one: Operation) -> Iterable[tuple[int, ErrorType]]:
    """Yield the statuses of an operation's refusals, each with the type of the refusal."""
    for kind in one.all_refusals():
        if one.errors is None:
            yield REGISTRY[kind].status, kind
        else:
            written = [one.errors.write(Refusal(kind, "", field=field), {}, sent)[0] for field, sent in _CASES]
            yield from ((status, kind) for status in sorted(set(written)))


def _bound_of(kinds: Iterable[ErrorType], limit: int) -> str:
    return f": a body of more than {limit} bytes" if ErrorType.PAYLOAD_TOO_LARGE in kinds else ""


# A field of the body and a credential, as far as the statuses of another service depend on them.
_CASES = (("to", True), ("to", False), ("body", True))
_ERROR_FIELDS = sorted({field for entry in REGISTRY.values() for field in entry.fields})
_FORMER_FIELDS = dict(pair for entry in REGISTRY.values() for pair in entry.former)


def _field_description(field: str) -> str:
    kinds = ", ".join(f"`{kind.value}`" for kind, entry in REGISTRY.items() if field in entry.fields)
    return f"Given with errors of type {kinds}"


def _error_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "description": "What is wrong, for programs and people",
                "required": ["type", "message"],
                "properties": {
                    "type": {
                        "type": "string",
                        "enum": [kind.value for kind in ErrorType],
                        "description": "The stable name of the error, for programs",
                    },
                    "message": {
                        "type": "string",
                        "description": "What is wrong and what to do, for people; it may change",
                    },
                    "docs": {
                        "type": "string",
                        "format": "uri",
                        "description": "The explanation of the type in the documentation of this installation",
                    },
                    **{field: {"description": _field_description(field)} for field in _ERROR_FIELDS},
                    **{
                        old: {"description": f"The previous name of `{new}`, with the same value", "deprecated": True}
                        for old, new in _FORMER_FIELDS.items()
                    },
                },
                "additionalProperties": True,
            }
        },
    }
