"""List the error classes that both clients define: one for each `error.type` of the API."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from api.http.client_names import class_name
from engine.base.errors import REGISTRY, ErrorType, RefusalEntry

# Attributes of every error of the clients: a field of the same name would overwrite them.
RESERVED: Final = frozenset({
    "status", "type", "message", "docs", "fields", "requestId", "retryAfter", "args", "name", "stack", "cause",
})  # fmt: skip


class ErrorClass(Struct, frozen=True):
    """The class of one error type: `rate_limited` is `RateLimitedError`. `fields` have their names on the wire."""

    name: str
    kind: str
    status: int
    fields: tuple[str, ...]


def error_classes(registry: Mapping[ErrorType, RefusalEntry] = REGISTRY) -> tuple[ErrorClass, ...]:
    """Return the classes in the registry's order. Raises ValueError for a field that is an attribute of every error."""
    found = []
    for kind, entry in registry.items():
        taken = sorted(RESERVED.intersection(entry.fields))
        if taken:
            raise ValueError(f"error `{kind.value}`: every error of the clients has an attribute {taken[0]!r} already")
        found.append(ErrorClass(f"{class_name(kind.value)}Error", kind.value, entry.status, entry.fields))
    return tuple(found)
