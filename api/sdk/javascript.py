"""Make the JavaScript client: its table of operations, and the TypeScript declarations of its methods and objects."""

import json
import re
from pathlib import Path
from typing import Final

from api.http.client_names import class_name
from api.sdk.document import DRY_FIELD, ClientDocument, ClientField, ClientOperation, Schema, read, reference, resolved
from api.sdk.error_classes import ErrorClass, error_classes

FILES: Final = Path(__file__).parent / "files"
_SCALARS: Final = {
    "string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null",
}  # fmt: skip
_WORDS: Final = re.compile(r"_+([a-z0-9])")
_HEAD: Final = """\
export const VERSION: string;

export interface WaybillOptions {
  /** Default: the environment variable WAYBILL_API_KEY. */
  apiKey?: string;
  /** The address of the service, without `/v1`. Default: the environment variable WAYBILL_URL. */
  baseUrl?: string;
  /** The time to wait for an answer. Default: 30,000 ms. */
  timeoutMs?: number;
  /** Further tries of a request that is safe to repeat. Default: 2. */
  maxRetries?: number;
  fetch?: typeof globalThis.fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
}

export class WaybillError extends Error {}

/** The request got no complete answer. Unless it is safe to repeat, the service may have carried it out. */
export class ConnectionFailedError extends WaybillError {}

/** The account log no longer holds all events between the last one of a tail and the present. */
export class EventsLostError extends WaybillError {}

/** The service closed the tail, and a new connection would not help. */
export class TailClosedError extends WaybillError {
  reason: string;
}

/** A refusal of the API: branch on `type`, or on the class. */
export class ApiError extends WaybillError {
  status: number;
  type: string;
  fields: { [name: string]: unknown };
  requestId: string | null;
  /** Seconds to wait. */
  retryAfter: number | null;
  /** The page that explains the error. */
  docs: string | null;
}
"""
# Methods of one group that are no operations.
_OWN: Final = {
    "events": """\
    /**
     * Call `handler` with each event of the log after the `seq` `after`, in the form of a webhook's body, oldest first.
     * Returns the `seq` to pass the next time. `type`: the types to hand over, by default all. Throws EventsLostError
     * if the log no longer has the events after `after`.
     */
    catchUp(
      after: number,
      handler: (event: WebhookEvent) => unknown,
      options?: { type?: string[]; signal?: AbortSignal },
    ): Promise<number>;""",
}


def files(document: Schema, version: str) -> dict[str, str]:
    """Return the files by their name: modules and their declarations."""
    known = read(document)
    table = ",\n".join(_row(one) for one in known.operations)
    module = (FILES / "waybill.mjs").read_text("utf-8")
    found = {
        "waybill.mjs": module.replace("{{version}}", version)
        .replace("{{operations}}", table)
        .replace("{{errors}}", _error_classes()),
        "waybill.d.ts": _declarations(known),
    }
    found |= {one.name: one.read_text("utf-8") for one in sorted(FILES.iterdir()) if one.name not in found}
    # TypeScript finds the types of `waybill.mjs` in `waybill.d.mts`.
    return found | {name.replace(".d.ts", ".d.mts"): text for name, text in found.items() if name.endswith(".d.ts")}


def camel(name: str) -> str:
    """Return `send_batch` as `sendBatch`."""
    return _WORDS.sub(lambda found: found[1].upper(), name.rstrip("_"))


def _row(one: ClientOperation) -> str:
    key = "body" if one.keyed else one.keyed_items
    query = [field.wire for field in one.query] if one.body else []
    row = [
        camel(one.group),
        camel(one.name),
        one.method,
        one.path,
        one.kind,
        int(one.is_repeatable),
        key,
        one.cursor,
        query,
    ]
    return "  " + json.dumps(row)


def _error_classes() -> str:
    """Return the classes of the error types, and the table that finds them."""
    lines = [
        f'export class {one.name} extends ApiError {{ static TYPE = "{one.kind}"; '
        f"static FIELDS = {json.dumps(one.fields)}; }}"
        for one in error_classes()
    ]
    names = ", ".join(one.name for one in error_classes())
    return "\n".join([*lines, "", f"const CLASSES = Object.fromEntries([{names}].map((one) => [one.TYPE, one]));"])


def _declared_error(one: ErrorClass) -> str:
    fields = [f"  {field}: any;" for field in one.fields]
    return "\n".join(
        [f"/** `{one.kind}`, HTTP {one.status}. */", f"export class {one.name} extends ApiError {{", *fields, "}"]
    )


def _declarations(known: ClientDocument) -> str:
    parts = [_HEAD.rstrip(), *map(_declared_error, error_classes())]
    parts += [_definition(name, schema) for name, schema in known.schemas.items()]
    parts += [
        f"export interface {_fields_name(one)} {_record([*one.body, *one.query], '')}"
        for one in known.operations
        if one.dry_reply is not None
    ]
    groups = [_group(name, operations, known) for name, operations in known.groups.items()]
    lines = ["export class Waybill {", "  constructor(options?: WaybillOptions);", *groups, "}"]
    return "\n\n".join([*parts, "\n".join(lines)]) + "\n"


def _definition(name: str, schema: Schema) -> str:
    comment = _comment(str(schema.get("description", "")), "")
    if "properties" not in schema:
        return f"{comment}export type {name} = {_type(schema)};"
    return f"{comment}export interface {name} {_object(schema, '')}"


def _object(schema: Schema, indent: str) -> str:
    required = set(schema.get("required", ()))
    fields = [
        ClientField(key, inner, key in required, str(inner.get("description", "")))
        for key, inner in schema["properties"].items()
    ]
    return _record(fields, indent)


def _record(fields: list[ClientField], indent: str) -> str:
    lines = [
        f"{_comment(one.text, indent + '  ')}{indent}  {json.dumps(one.wire)}{'' if one.required else '?'}: "
        f"{_type(one.schema, indent + '  ')};"
        for one in fields
    ]
    return "\n".join(["{", *lines, f"{indent}}}"])


def _type(schema: Schema, indent: str = "") -> str:
    name = reference(schema)
    if name is not None:
        return name
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one, indent) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(one) for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}, indent) for one in kind)
    if kind == "array":
        return f"Array<{_type(schema.get('items', {}), indent)}>"
    if kind != "object":
        return _SCALARS.get(str(kind), "unknown")
    if schema.get("properties"):
        return _object(schema, indent)
    inner = schema.get("additionalProperties")
    value = _type(inner, indent) if isinstance(inner, dict) else "unknown"
    return f"{{ [name: string]: {value} }}"  # not Record<…>: a schema of the API has that name


def _group(name: str, operations: list[ClientOperation], known: ClientDocument) -> str:
    methods = [line for one in operations for line in _methods(one, known)]
    methods += [_OWN[name]] if name in _OWN else []
    return "\n".join([f"  /** {class_name(name)} */", f"  {camel(name)}: {{", *methods, "  };"])


def _methods(one: ClientOperation, known: ClientDocument) -> list[str]:
    fields = [*one.body, *one.query]
    optional = "" if any(field.required for field in fields) else "?"
    ids = [f"{name}: string" for name in one.path_fields]
    record = [f"fields{optional}: {_record(fields, '    ')}"] if fields else ["fields?: {}"]
    arguments = ", ".join([*ids, *record, "options?: CallOptions"])
    reply = " | ".join(
        dict.fromkeys(
            [*(_type(schema, "    ") for schema in one.replies), *(["null"] if one.is_optional_reply else [])]
        )
    )
    comment = _comment(one.text.split("\n\n")[0], "    ")
    if one.dry_reply is not None:
        return _by_dry_run(one, comment)
    head = f"{comment}    {camel(one.name)}({arguments}): "
    if one.kind in ("tail", "export"):
        found = [f"{head}AsyncGenerator<{reply}>;"]
        if one.kind == "export":
            found.append(f"    {camel(one.name)}File({arguments}): Promise<Response>;")
        return found
    if one.kind == "download":
        return [f"{head}Promise<Response>;"]
    found = [f"{head}Promise<{reply or 'null'}>;"]
    if one.cursor is not None:
        row = resolved(one.replies[0], known.schemas)["properties"]["data"].get("items", {})
        name = "iterate" if one.name == "list" else camel(f"iterate_{one.name}")
        found.append(f"    {name}({arguments}): AsyncGenerator<{_type(row, '    ')}>;")
    return found


def _fields_name(one: ClientOperation) -> str:
    """Return the name of the type of the fields that an operation with several replies takes."""
    return f"{class_name(one.group)}{class_name(one.name)}Fields"


def _by_dry_run(one: ClientOperation, comment: str) -> list[str]:
    """Return the signatures of a method whose reply has another type with `dryRun`."""
    named = _fields_name(one)
    real = " | ".join(_type(reply) for reply in one.replies if reply is not one.dry_reply)
    dry = _type(one.dry_reply or {})
    return [
        f"{comment}    {camel(one.name)}({', '.join([*(f'{name}: string' for name in one.path_fields), fields])}, "
        f"options?: CallOptions): Promise<{reply}>;"
        for fields, reply in (
            (f"fields: {named} & {{ {DRY_FIELD}: true }}", dry),
            (f"fields: {named} & {{ {DRY_FIELD}?: false | null }}", real),
            (f"fields: {named}", f"{real} | {dry}"),
        )
    ]


def _comment(text: str, indent: str) -> str:
    plain = " ".join(text.split()).replace("*/", "* /")
    return f"{indent}/** {plain} */\n" if plain else ""
