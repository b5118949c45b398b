"""Read the operations that an API key may call from the OpenAPI document, in the form that both generators use."""

import re
from typing import Any, Final

from msgspec import Struct

from api.http.client_names import client_method
from api.http.openapi_parts import schemas_in
from api.sdk import event_types

Schema = dict[str, Any]

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_REF: Final = "#/components/schemas/"
_JSON: Final = "application/json"
_EXPORT: Final = "application/x-ndjson"
_EVENTS: Final = "text/event-stream"
# Other clients call these with the bodies of other services.
_FOREIGN: Final = "/v1/compat/"
_OPEN: Final = frozenset({"/v1/instance"})  # without a credential, and of use to programs
REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})  # RFC 9110 9.2.2
KEY_FIELD: Final = "idempotencyKey"
DRY_FIELD: Final = "dryRun"


class ClientField(Struct, frozen=True):
    """A property of a body or a parameter of a query."""

    wire: str
    schema: Schema
    required: bool
    text: str


class ClientOperation(Struct, frozen=True, kw_only=True):
    """One operation as a client calls it. `cursor` is the parameter that continues a list, None if it is no list."""

    group: str
    name: str
    method: str
    path: str
    text: str
    path_fields: tuple[str, ...]
    query: tuple[ClientField, ...]
    body: tuple[ClientField, ...]
    has_body: bool
    raw_type: str | None  # media type of a body that is not JSON
    replies: tuple[Schema, ...]
    dry_reply: Schema | None  # the one of `replies` that a call with `dryRun` gets, if it gets another one
    reply_type: str
    is_optional_reply: bool
    cursor: str | None
    keyed: bool  # the body has an idempotency key
    keyed_items: str | None  # the list of the body whose objects have one

    @property
    def is_repeatable(self) -> bool:
        """Return True if the service may carry it out twice without harm."""
        return self.method in REPEATABLE or self.keyed or self.keyed_items is not None

    @property
    def kind(self) -> str:
        """Return `json`, `export`, `tail` or `download`: the form of the answer."""
        if self.reply_type in (_EXPORT, _EVENTS):
            return "export" if self.reply_type == _EXPORT else "tail"
        return "json" if self.reply_type == _JSON else "download"


class ClientDocument(Struct, frozen=True):
    """The operations of the clients, and the schemas that they use."""

    operations: tuple[ClientOperation, ...]
    schemas: dict[str, Schema]

    @property
    def groups(self) -> dict[str, list[ClientOperation]]:
        """Return the operations by their group, in the order of the document."""
        found: dict[str, list[ClientOperation]] = {}
        for one in self.operations:
            found.setdefault(one.group, []).append(one)
        return dict(sorted(found.items()))


def read(document: Schema) -> ClientDocument:
    """Return what the clients offer. Raises ValueError if two operations have one name."""
    schemas = event_types.typed(document["components"]["schemas"], document["webhooks"])
    operations = [
        _operation(method.upper(), path, described, schemas)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if is_for_clients(path, described)
    ]
    names = [(one.group, one.name) for one in operations]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two operations have the name {sorted(twice)}; give one another in api/http/client_names.py")
    roots: list[Schema] = [schema for one in operations for schema in _schemas_of(one)]
    used = schemas_in([*roots, schemas.get(event_types.POSTED, {})], schemas) | {event_types.POSTED} & schemas.keys()
    return ClientDocument(tuple(operations), {name: schemas[name] for name in sorted(used)})


def is_for_clients(path: str, described: Schema) -> bool:
    """Return True for an operation that an API key may call."""
    return path in _OPEN or ({"apiKey": []} in described["security"] and not path.startswith(_FOREIGN))


def resolved(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    """Return the schema that a reference names, or the schema itself."""
    return schemas[schema["$ref"].removeprefix(_REF)] if "$ref" in schema else schema


def reference(schema: Schema) -> str | None:
    """Return the name of the schema that `schema` refers to, None if it is no reference."""
    found = schema.get("$ref")
    return None if found is None else str(found).removeprefix(_REF)


def _operation(method: str, path: str, described: Schema, schemas: dict[str, Schema]) -> ClientOperation:
    name = client_method(method, path)
    contents = described.get("requestBody", {}).get("content", {})
    body = resolved(contents[_JSON]["schema"], schemas) if _JSON in contents else {}
    replies, reply_type, is_optional = _replies(described)
    query = tuple(
        ClientField(one["name"], one["schema"], bool(one.get("required")), _text_of(one))
        for one in described.get("parameters", ())
        if one["in"] == "query" and not (one["name"] == "format" and reply_type in (_EXPORT, _JSON))
    )
    return ClientOperation(
        group=name.group,
        name=name.method,
        method=method,
        path=path,
        text=_text(method, path, described),
        path_fields=tuple(_PARAMETER.findall(path)),
        query=query,
        body=_fields(body),
        has_body=bool(contents),
        raw_type=next((kind for kind in contents if kind != _JSON), None),
        replies=replies,
        dry_reply=next((one for one in replies if len(replies) > 1 and _is_dry(one, schemas)), None),
        reply_type=reply_type,
        is_optional_reply=is_optional,
        cursor=_cursor(replies, query, schemas),
        keyed=KEY_FIELD in body.get("properties", {}),
        keyed_items=_keyed_items(body, schemas),
    )


def _is_dry(reply: Schema, schemas: dict[str, Schema]) -> bool:
    """Return True for a reply that only a call with `dryRun` gets."""
    found = resolved(reply, schemas).get("properties", {}).get(DRY_FIELD, {})
    return bool(found.get("const") is True)


def _text(method: str, path: str, described: Schema) -> str:
    note = described.get("description")
    return "\n\n".join([f"{described['summary']}.", f"`{method} {path}`.", *([f"{note}."] if note else [])]).replace(
        "..", "."
    )


def _fields(body: Schema) -> tuple[ClientField, ...]:
    required = set(body.get("required", ()))
    return tuple(
        ClientField(name, schema, name in required, _text_of(schema))
        for name, schema in body.get("properties", {}).items()
    )


def _text_of(found: Schema) -> str:
    inner = found.get("schema", found)
    return str(found.get("description") or inner.get("description") or "")


def _replies(described: Schema) -> tuple[tuple[Schema, ...], str, bool]:
    """Return the schemas of all successful answers, their media type, and whether one of them has no body."""
    found: list[Schema] = []
    kinds: list[str] = []
    is_empty = False
    for status, answer in described["responses"].items():
        if not status.startswith("2"):
            continue
        content = answer.get("content", {})
        is_empty = is_empty or not content
        for kind, media in content.items():
            kinds.append(kind)
            schema = media.get("x-item-schema", media.get("schema", {}))
            found += [one for one in schema.get("anyOf", [schema]) if kind == kinds[0] and one not in found]
    return tuple(found), kinds[0] if kinds else _JSON, is_empty


def _cursor(replies: tuple[Schema, ...], query: tuple[ClientField, ...], schemas: dict[str, Schema]) -> str | None:
    """Return the parameter that takes `nextCursor`, None unless the reply is a page."""
    if len(replies) != 1:
        return None
    properties = resolved(replies[0], schemas).get("properties", {})
    if "data" not in properties or "nextCursor" not in properties:
        return None
    known = {one.wire for one in query}
    return next((name for name in ("before", "after", "cursor") if name in known), None)


def _keyed_items(body: Schema, schemas: dict[str, Schema]) -> str | None:
    for name, schema in body.get("properties", {}).items():
        items = schema.get("items")
        if isinstance(items, dict) and KEY_FIELD in resolved(items, schemas).get("properties", {}):
            return str(name)
    return None


def _schemas_of(one: ClientOperation) -> list[Schema]:
    return [*one.replies, *(field.schema for field in (*one.query, *one.body))]
