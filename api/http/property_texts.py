"""Describe the properties of all schemas for the OpenAPI document, each with a sentence and an example.

A text in the schema itself wins (`msgspec.Meta`). The others stand in `property_texts.toml`, once for each name that
means the same everywhere, and as `Schema.property`, or `Query.property` for all queries, where it does not.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from engine.base import ids
from engine.base.ids import Kind

_FILE: Final = Path(__file__).with_name("property_texts.toml")
_ID_BODY: Final = "01k9m2q8f0e4xbn7t5v3w6y9za"
_TIME: Final = "2026-11-23T09:30:00.000Z"
_IDS: Final = {
    "accountId": Kind.ACCOUNT,
    "contact": Kind.CONTACT,
    "list": Kind.LIST,
    "memberId": Kind.USER,
    "messageId": Kind.MESSAGE,
    "parentId": Kind.ACCOUNT,
    "resentFrom": Kind.MESSAGE,
    "ruleId": Kind.ALERT_RULE,
    "segment": Kind.SEGMENT,
    "subAccountId": Kind.ACCOUNT,
    "webhookId": Kind.WEBHOOK,
}
_OWN_IDS: Final = {  # the start of a schema's name -> the kind of its `id`
    "AccountShown": Kind.ACCOUNT,
    "AlertEvent": Kind.ALERT_EVENT,
    "AlertRule": Kind.ALERT_RULE,
    "AlertRulesMade": Kind.ALERT_RULE,
    "ApiKey": Kind.API_KEY,
    "Attachment": Kind.ATTACHMENT,
    "AuditEvent": Kind.EVENT,
    "Broadcast": Kind.BROADCAST,
    "CheckedDomain": Kind.DOMAIN,
    "Checkout": Kind.CHECKOUT,
    "CodeChecked": Kind.VERIFICATION,
    "Contact": Kind.CONTACT,
    "ContactList": Kind.LIST,
    "ConversationMessage": Kind.RECEIVED,
    "CountedSegment": Kind.SEGMENT,
    "Delivery": Kind.EVENT,
    "Domain": Kind.DOMAIN,
    "Erasure": Kind.ERASURE,
    "ExportedEvent": Kind.EVENT,
    "Identity": Kind.IDENTITY,
    "Image": Kind.IMAGE,
    "InboundAddress": Kind.INBOUND_ADDRESS,
    "InboundDomain": Kind.DOMAIN,
    "InboundRoute": Kind.INBOUND_ROUTE,
    "Invite": Kind.INVITE,
    "Invoice": Kind.INVOICE,
    "Lead": Kind.LEAD,
    "ListedAccount": Kind.ACCOUNT,
    "ListedSubAccount": Kind.ACCOUNT,
    "LoggedRequest": Kind.REQUEST,
    "MadeKey": Kind.API_KEY,
    "Me": Kind.ACCOUNT,
    "Member": Kind.USER,
    "OneSession": Kind.SESSION,
    "OperatorAccount": Kind.ACCOUNT,
    "Passkey": Kind.PASSKEY,
    "PersonShown": Kind.USER,
    "Profile": Kind.USER,
    "PulledEvent": Kind.EVENT,
    "Queued": Kind.EVENT,
    "ReceivedAttachmentInfo": Kind.ATTACHMENT,
    "ReceivedMessage": Kind.RECEIVED,
    "ReplayReply": Kind.RECEIVED,
    "ReviewedBroadcast": Kind.BROADCAST,
    "RotatedKey": Kind.API_KEY,
    "SavedView": Kind.VIEW,
    "SecretMade": Kind.WEBHOOK,
    "Segment": Kind.SEGMENT,
    "SubAccount": Kind.ACCOUNT,
    "TailMessage": Kind.EVENT,
    "Verification": Kind.VERIFICATION,
    "Webhook": Kind.WEBHOOK,
    "WaybillEvent": Kind.EVENT,
}

_GOOD: Final = {"active", "approved", "completed", "delivered", "ok", "paid", "queued", "sent", "verified"}

Schema = dict[str, Any]


def describe(components: dict[str, Schema]) -> None:
    """Add the missing descriptions and examples to the properties of the components."""
    for name, schema in components.items():
        for key, shape in schema.get("properties", {}).items():
            add_text(shape, key, schema_name=name, components=components)


def add_text(shape: Schema, name: str, *, schema_name: str, components: dict[str, Schema]) -> None:
    """Add description and example to one property or parameter, where the schema has none."""
    in_query = _texts().get(f"Query.{name}") if schema_name.endswith("Query") else None
    known = _texts().get(f"{schema_name}.{name}") or in_query or _texts().get(name) or {}
    if "description" not in shape and known:
        shape["description"] = known["text"].format(noun=_noun(schema_name)) if "{" in known["text"] else known["text"]
    kinds = _kinds(shape, components)
    if "examples" in shape or "const" in shape or ("object" in kinds and "example" not in known):
        return
    for example in (known.get("example"), *_guesses(shape, name, schema_name, components)):
        if example is not None and _kind_of(example) & kinds and _allowed(example, shape, components):
            shape["examples"] = [example]
            if not known.get("several_kinds"):
                _add_pattern(shape, example)
            return


def _add_pattern(shape: Schema, example: object) -> None:
    """Add the pattern of ids where the example is one, or a list of one."""
    for one in shape.get("anyOf", [shape]):
        if isinstance(example, list) and one.get("type") == "array" and example:
            _add_pattern(one["items"], example[0])
        elif one.get("type") == "string" and isinstance(example, str) and example.endswith(f"_{_ID_BODY}"):
            one["pattern"] = ids.pattern(Kind(example.removesuffix(f"_{_ID_BODY}")))


def _noun(schema_name: str) -> str:
    """Return what the records of a schema are called in sentences."""
    nouns = _texts()["_nouns"]
    start = _longest_start(schema_name, nouns)
    return str(nouns[start]) if start else "the record"


def _longest_start(schema_name: str, known: Iterable[str]) -> str | None:
    """Return the longest of the known words that the name begins with; the next letter must begin another word."""
    found = [one for one in known if schema_name.startswith(one) and not schema_name[len(one) : len(one) + 1].islower()]
    return max(found, key=len, default=None)


@cache
def _texts() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_FILE.read_text("utf-8"))


def _guesses(shape: Schema, name: str, schema_name: str, components: dict[str, Schema]) -> tuple[object, ...]:
    """Return the examples that follow from a property's choices, name and type, best first."""
    choices = [choice for one in _choices(shape, components) for choice in one.get("enum", ())]
    choices.sort(key=lambda one: one not in _GOOD)  # an example shows how things go well
    items = [one["items"] for one in _choices(shape, components) if one.get("items")]
    inner = [[choice] for one in items for part in _choices(one, components) for choice in part.get("enum", ())]
    start = _longest_start(schema_name, _OWN_IDS)
    own = _OWN_IDS[start] if start else Kind.MESSAGE
    kind = _IDS.get(name) or (own if name == "id" else None)
    identifier = None if kind is None else f"{kind.value}_{_ID_BODY}"
    time = _TIME if name.endswith(("At", "Until", "since", "until", "Due", "asOf", "For")) or name == "at" else None
    called = _texts()["_names"].get(_noun(schema_name)) if name == "name" else None
    return (*choices, *inner, identifier, time, called, "text", ["text"], 1, 0.5, True)


def _choices(shape: Schema, components: dict[str, Schema]) -> list[Schema]:
    """Return the schemas that a value may satisfy, with references followed."""
    if "$ref" in shape:
        return _choices(components.get(shape["$ref"].rsplit("/", 1)[-1], {}), components)
    return [
        found for one in shape.get("anyOf", [shape]) for found in ([one] if one is shape else _choices(one, components))
    ]


def _kinds(shape: Schema, components: dict[str, Schema]) -> set[str]:
    return {str(one.get("type", "string" if "enum" in one else "")) for one in _choices(shape, components)} - {
        "null",
        "",
    }


def _kind_of(example: object) -> set[str]:
    if isinstance(example, bool):
        return {"boolean"}
    if isinstance(example, int):
        return {"integer", "number"}
    known = {str: "string", float: "number", list: "array", dict: "object"}
    return {known[type(example)]}


def _allowed(example: object, shape: Schema, components: dict[str, Schema]) -> bool:
    """Return True if one of the schemas takes the example, by choices, bounds and the type of items."""
    return any(_fits(example, one, components) for one in _choices(shape, components))


def _fits(example: object, one: Schema, components: dict[str, Schema]) -> bool:
    if "enum" in one:
        return example in one["enum"]
    if isinstance(example, str):
        return one.get("type") == "string" and one.get("minLength", 0) <= len(example) <= one.get("maxLength", 1 << 30)
    if isinstance(example, list):
        items = one.get("items") or {}
        return one.get("type") == "array" and all(
            bool(_kind_of(item) & _kinds(items, components)) and _allowed(item, items, components) for item in example
        )
    if isinstance(example, int | float):
        return bool(one.get("minimum", example) <= example <= one.get("maximum", example))
    return True
