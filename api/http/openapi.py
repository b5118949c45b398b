"""The OpenAPI 3.1 document, generated from the operations: nothing in it is written twice."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from api.http.auth import CSRF_HEADER
from api.http.operation import Access, Operation
from engine.areas.sessions.rules import COOKIE
from engine.base.errors import REGISTRY, ErrorType

_PARAMETER = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"
VERSION = "1.0.0"
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}


_SECURITY: dict[Access, list[dict[str, list[str]]]] = {
    Access.NONE: [],
    Access.KEY: [{"apiKey": []}, {"session": []}],
    Access.SESSION: [{"session": []}],
    Access.PLATFORM_KEY: [{"apiKey": []}],
}


def document(operations: Iterable[Operation], *, server: str) -> bytes:
    """The document as JSON."""
    listed = list(operations)
    types = [part for one in listed for part in (one.request, one.query, one.reply) if part is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for one in listed:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_type, components)
    components = {**components, "Error": _error_schema()}
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Waybill",
                "version": VERSION,
                "description": "Transactional email: accepted durably, signed, delivered, and told about truthfully. "
                "The `Idempotency-Key` header is not read: use the body field `idempotencyKey`.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": server}],
            "tags": [{"name": tag} for tag in sorted({one.tag for one in listed})],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "apiKey": {"type": "http", "scheme": "bearer", "bearerFormat": "svc_live_…"},
                    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
                },
            },
        }
    )


def _operation(one: Operation, by_type: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.id,
        "tags": [one.tag],
        "summary": one.summary,
        "security": _SECURITY[one.access],
        "responses": _responses(one, by_type),
    }
    told = " ".join(text for text in (one.note, _needs(one)) if text)
    if told:
        described["description"] = told
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
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
    if parameters:
        described["parameters"] = parameters
    if one.request is not None:
        described["requestBody"] = {
            "required": not one.no_body_is_empty,
            "content": {"application/json": {"schema": by_type[id(one.request)]}},
        }
    return described


def _needs(one: Operation) -> str:
    scopes = " or ".join(f"`{scope}`" for scope in one.scopes)
    words = [f"Scope: {scopes}"] if scopes else []
    if one.role is not None:
        words.append(f"Role: `{one.role.value}` or higher")
    return ". ".join(words)


def _query_parameters(query: type[Struct], by_type: dict[int, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    reference = by_type[id(query)].get("$ref", "")
    schema = components.pop(reference.rsplit("/", 1)[-1], None) or {}
    required = set(schema.get("required", ()))
    found = []
    for name, shape in schema.get("properties", {}).items():
        kept = {key: value for key, value in shape.items() if not (key == "default" and value is None)}
        if "anyOf" in kept:  # a parameter is given or left out, never null
            choices = [choice for choice in kept.pop("anyOf") if choice != {"type": "null"}]
            kept |= choices[0] if len(choices) == 1 else {"anyOf": choices}
        found.append({"name": name, "in": "query", "required": name in required, "schema": kept})
    return found


def _responses(one: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status in (one.success, *one.also):
        answer: dict[str, Any] = {"description": "Success", "headers": {"X-Request-Id": {"schema": {"type": "string"}}}}
        if one.reply is None and one.reply_type == "application/json" and status != 204:
            answer["content"] = {"application/json": {"schema": {"type": "object"}}}
        elif one.reply is not None and one.reply_type != "application/json":
            # OpenAPI 3.1 has no word for the records of a stream; generators may use ours.
            answer["content"] = {
                one.reply_type: {"schema": {"type": "string"}, "x-item-schema": by_type[id(one.reply)]}
            }
        elif one.reply is not None:
            answer["content"] = {"application/json": {"schema": by_type[id(one.reply)]}}
        elif one.reply_type != "application/json":
            answer["content"] = {one.reply_type: {}}
        answers[str(status)] = answer
    by_status: dict[int, list[ErrorType]] = {}
    for kind in one.all_refusals():
        by_status.setdefault(REGISTRY[kind].status, []).append(kind)
    for status, kinds in sorted(by_status.items()):
        answers[str(status)] = {
            **({"headers": _RETRY_AFTER} if status in {429, 503} else {}),
            "description": ", ".join(f"`{kind.value}`" for kind in kinds),
            "content": {
                "application/json": {
                    "schema": {
                        "allOf": [
                            {"$ref": "#/components/schemas/Error"},
                            {"properties": {"error": {"properties": {"type": {"enum": [k.value for k in kinds]}}}}},
                        ]
                    }
                }
            },
        }
    return answers


_EVIDENCE = sorted({field for entry in REGISTRY.values() for field in entry.fields})


def _carried_by(field: str) -> str:
    kinds = ", ".join(f"`{kind.value}`" for kind, entry in REGISTRY.items() if field in entry.fields)
    return f"Evidence of {kinds}"


def _error_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {
                    "type": {"type": "string", "enum": [kind.value for kind in ErrorType]},
                    "message": {"type": "string"},
                    **{field: {"description": _carried_by(field)} for field in _EVIDENCE},
                },
                "additionalProperties": True,
            }
        },
    }
