"""Cut a part out of the OpenAPI document: the operations of some tags, with the schemas that they use."""

from collections.abc import Mapping
from typing import Any

import orjson

from engine.base.errors import invalid, shown


def part(whole: bytes, tags: frozenset[str]) -> bytes:
    """Return the part of a document with the operations of some tags, and the schemas that they use.

    Raises Refusal for an unknown tag.
    """
    found: dict[str, Any] = orjson.loads(whole)
    known = [str(one["name"]) for one in found["tags"]]
    for tag in sorted(tags.difference(known)):
        raise invalid("tag", f"`tag` is {shown(tag)!r}. The document has the tags {', '.join(known)}.")
    found["tags"] = [one for one in found["tags"] if one["name"] in tags]
    for section in ("paths", "webhooks"):
        kept = {
            path: {method: one for method, one in methods.items() if tags.intersection(one["tags"])}
            for path, methods in found[section].items()
        }
        found[section] = {path: methods for path, methods in kept.items() if methods}
    schemas = found["components"]["schemas"]
    used = schemas_in([found["paths"], found["webhooks"]], schemas)
    found["components"]["schemas"] = {name: schema for name, schema in schemas.items() if name in used}
    return orjson.dumps(found)


def schemas_in(roots: list[Any], schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of all schemas that `roots` refer to, directly or through others."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            name = str(one.get("$ref", "")).rsplit("/", 1)[-1]
            if name in schemas and name not in found:
                found.add(name)
                waiting.append(schemas[name])
            waiting += [value for key, value in one.items() if key not in ("examples", "default")]
    return found
