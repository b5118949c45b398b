"""Bound the number of values in a JSON body before it is decoded.

The decoder checks the length of an object or array only once it has decoded all of it: a million entries of `metadata`
in 14 MB cost 0.3 s of CPU before their 400. Here their commas and opening brackets are counted, outside of strings.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec

SMALL_BYTES: Final = 256 * 1024  # holds 90,000 values at most, whose decoding takes some 25 ms
MAX_VALUES: Final = 200_000  # of one body, whatever its schema allows: decoding so many costs some 30 ms
FREE_VALUES: Final = 10_000  # of a field that takes any JSON
_MAX_HOPS: Final = 1_024  # quotes that are visited one by one; most large bodies hold a few long strings
_BACKSLASH: Final = 0x5C
_REF: Final = "#/components/schemas/{name}"
_ESCAPES: Final = (b"\\\\", b'\\"')


def has_more(body: bytes, limit: int) -> bool:
    """Return True if a JSON text has more than `limit` entries of objects and arrays, empty ones counted as one.

    Each entry has two strings at most, so that a text with too many quotes needs no closer look.
    """
    outside = _outside_strings(body)
    if outside is None:
        for escape in _ESCAPES:
            body = body.replace(escape, b"")
        most = 4 * (limit + 1)
        pieces = body.split(b'"', most)
        if len(pieces) > most:
            return True
        outside = pieces[::2]
    rest = b"".join(outside)
    return rest.count(b",") + rest.count(b"[") + rest.count(b"{") > limit


def _outside_strings(body: bytes) -> list[bytes] | None:
    """Return the parts of a JSON text outside of its strings; None if it has too many quotes to visit each."""
    outside: list[bytes] = []
    start, is_inside, place = 0, False, -1
    for _ in range(_MAX_HOPS):
        before, place = place, body.find(b'"', place + 1)
        if place < 0:
            return [*outside, body[start:]] if not is_inside else outside
        if is_inside and body[place - 1] == _BACKSLASH and _is_escaped(body, before + 1, place):
            continue
        if is_inside:
            start = place + 1
        else:
            outside.append(body[start:place])
        is_inside = not is_inside
    return None


def _is_escaped(body: bytes, start: int, quote: int) -> bool:
    """Return True if an odd number of backslashes stands before a quote."""
    if body[quote - 2] != _BACKSLASH:
        return True
    text = body[start:quote]
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


@lru_cache(maxsize=1_024)
def values_allowed(shape: Any) -> int:
    """Return how many entries of objects and arrays a valid body of a type may have, MAX_VALUES at most."""
    (schema,), components = msgspec.json.schema_components([shape], ref_template=_REF)
    return min(MAX_VALUES, _values(schema, components))


def _values(schema: dict[str, Any], components: dict[str, Any]) -> int:
    """Return the most entries of a valid value, itself not counted."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _values(components[name], components) if name in components else FREE_VALUES
    if "anyOf" in schema:
        return max(_values(choice, components) for choice in schema["anyOf"])
    kind = schema.get("type")
    if kind == "array":
        most: int = schema.get("maxItems", FREE_VALUES)
        return 1 + most * (1 + _values(schema.get("items", {}), components))
    if kind == "object" and ("properties" in schema or schema.get("additionalProperties")):
        named = sum(1 + _values(value, components) for value in schema.get("properties", {}).values())
        each = schema.get("additionalProperties")
        more = 1 + _values(each, components) if isinstance(each, dict) else 0
        names: int = schema.get("maxProperties", FREE_VALUES)
        return 1 + named + names * more
    return FREE_VALUES if kind in (None, "object") and "enum" not in schema and "const" not in schema else 0
