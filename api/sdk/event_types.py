"""Type events by their `type`: both clients declare a union of one object per event type, whose `detail` it describes.

The OpenAPI document keeps one object per form, so that clients made by other generators accept types of later versions.
"""

from typing import Any, Final

from api.http.client_names import class_name, python_name
from engine.base.events import AccountEvent, EventType

Schema = dict[str, Any]

POSTED: Final = "WebhookEvent"
_PULLED: Final = "PulledEvent"
_OTHERS: Final = "OtherEventType"
# The schemas of the document that hold events, with the end of the names of their variants.
_FORMS: Final = {_PULLED: "Event", "TailMessage": "TailMessage", "WaybillEvent": "WaybillEvent"}


def typed(schemas: dict[str, Schema], webhooks: dict[str, Any]) -> dict[str, Schema]:
    """Return the schemas with a union in place of each form of an event, and with the union of webhook bodies.

    `webhooks`: the section of the OpenAPI document, which describes the events that webhooks deliver.
    """
    bodies: dict[str, Schema] = {
        kind: methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        for kind, methods in webhooks.items()
    }
    if not bodies:
        return schemas
    found = dict(schemas)
    for kind, body in bodies.items():
        found[f"{_name(kind)}Detail"] = body["properties"]["data"]["properties"]["detail"]
    for form, ending in _FORMS.items():
        if form in schemas:
            kinds = list(bodies) if form == _PULLED else [kind for kind in bodies if kind in set(EventType)]
            found |= _variants(form, ending, schemas[form], kinds)
    posts = {f"{_name(kind)}Webhook": _post(kind, body) for kind, body in bodies.items()}
    about = "The body of a webhook request, by `type`. `id` stays the same in every attempt: use it to drop repeats."
    return found | posts | {POSTED: _union(list(posts), about)}


def _variants(form: str, ending: str, schema: Schema, kinds: list[str]) -> dict[str, Schema]:
    """Return the union that takes the place of `schema`, and its members."""
    found = {
        f"{_name(kind)}{ending}": _with(schema, type=_constant(kind), detail=_reference(f"{_name(kind)}Detail"))
        for kind in kinds
    }
    if form == _PULLED:
        found[f"Other{ending}"] = _with(schema, type=_reference(_OTHERS))
    union = {form: _union(list(found), str(schema.get("description", "")))}
    others = [kind.value for kind in AccountEvent if kind.value not in kinds]
    return found | union | {_OTHERS: {"enum": others, "description": "The types that webhooks do not deliver."}}


def _post(kind: str, body: Schema) -> Schema:
    data = _with(body["properties"]["data"], detail=_reference(f"{_name(kind)}Detail"))
    return {**_with(body, data=data), "description": f"The body of a webhook request for `{kind}`."}


def _with(schema: Schema, **properties: Schema) -> Schema:
    return {**schema, "properties": {**schema["properties"], **properties}}


def _constant(kind: str) -> Schema:
    return {"type": "string", "const": kind}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _union(names: list[str], description: str) -> Schema:
    return {"anyOf": [_reference(name) for name in names], "description": description}


def _name(kind: str) -> str:
    """Return `schedule_canceled` as `ScheduleCanceled`, and `inbound.received` as `InboundReceived`."""
    return class_name(python_name(kind))
