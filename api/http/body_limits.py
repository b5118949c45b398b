"""Compute the largest body that the schema of an operation allows.

JSON may write each character as an escape and put white space anywhere; a schema bounds characters and entries. An
operation whose schema has no bound, or one far above real requests, declares its own.
"""

import math
from typing import Any, Final

import msgspec

NO_BODY_BYTES: Final = 4 * 1024  # operations without a body: some clients send `{}` anyway
MIN_BODY_BYTES: Final = 16 * 1024
MAX_ANONYMOUS_BYTES: Final = 64 * 1024  # without credentials
_STEP_BYTES: Final = 4 * 1024
_ESCAPED: Final = 6  # `\u00e9`: RFC 8259 section 7
_NUMBER: Final = 32
_REF: Final = "#/components/schemas/{name}"


class Unbounded(ValueError):  # noqa: N818 - named for what the schema is
    """The schema allows a body of any length."""


def bytes_needed(request: Any) -> int:
    """Return the largest size in octets of a valid body of type `request`, with white space. Raises Unbounded."""
    (schema,), components = msgspec.json.schema_components([request], ref_template=_REF)
    longest = 2 * _longest(schema, components)
    return max(MIN_BODY_BYTES, math.ceil(longest / _STEP_BYTES) * _STEP_BYTES)


def _longest(schema: dict[str, Any], components: dict[str, Any]) -> int:
    if "$ref" in schema:
        return _longest_of_name(schema["$ref"].rpartition("/")[2], components)
    if "anyOf" in schema:
        return max(_longest(choice, components) for choice in schema["anyOf"])
    if "enum" in schema:
        return max(len(str(choice)) for choice in schema["enum"]) * _ESCAPED + 2
    kind = schema.get("type")
    if kind == "string":
        return _bound(schema, "maxLength") * _ESCAPED + 2
    if kind == "array":
        return _bound(schema, "maxItems") * (_longest(schema["items"], components) + 2) + 2
    if kind == "object" and ("properties" in schema or "additionalProperties" in schema):
        return _longest_object(schema, components)
    if kind in {"integer", "number", "boolean", "null"}:
        return _NUMBER
    raise Unbounded(f"the schema allows any value: {schema}")


def _longest_of_name(name: str, components: dict[str, Any]) -> int:
    if name not in components:  # decoded later, as the messages of a batch are
        raise Unbounded(f"the schema of {name} is not among the components")
    return _longest(components[name], components)


def _longest_object(schema: dict[str, Any], components: dict[str, Any]) -> int:
    size = 2
    for name, value in schema.get("properties", {}).items():
        size += len(name) * _ESCAPED + 4 + _longest(value, components)
    if schema.get("additionalProperties") not in (None, False):
        names = _bound(schema.get("propertyNames", {}), "maxLength") * _ESCAPED + 4
        size += _bound(schema, "maxProperties") * (names + _longest(schema["additionalProperties"], components))
    return size


def _bound(schema: dict[str, Any], name: str) -> int:
    if name not in schema:
        raise Unbounded(f"the schema sets no {name}: {schema}")
    bound: int = schema[name]
    return bound
