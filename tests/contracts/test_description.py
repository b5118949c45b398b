"""The OpenAPI document as generators of clients need it: names, patterns, no null defaults, and parts by tag."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from api.http.openapi_parts import schemas_in
from api.http.operation_names import operation_name
from api.routes import client_document
from engine.base import ids
from engine.base.settings import Settings
from tests.harness.api import Api

DOCUMENT: dict[str, Any] = orjson.loads(client_document(Settings()))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def operations(document: dict[str, Any] = DOCUMENT) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            yield f"{method.upper()} {path}", described


def test_an_operation_is_named_in_words() -> None:
    names = {name: described["operationId"] for name, described in operations()}
    assert {place: names[place] for place in (
        "POST /v1/emails", "POST /v1/emails/batch", "GET /v1/messages", "GET /v1/messages/{id}", "GET /v1/me",
        "POST /v1/domains/{id}/verify", "GET /v1/inbound/addresses", "DELETE /v1/lists/{id}/members/{contactId}",
    )} == {
        "POST /v1/emails": "sendEmail",
        "POST /v1/emails/batch": "sendEmailBatch",
        "GET /v1/messages": "listMessages",
        "GET /v1/messages/{id}": "getMessage",
        "GET /v1/me": "getAccount",
        "POST /v1/domains/{id}/verify": "verifyDomain",
        "GET /v1/inbound/addresses": "listInboundAddresses",
        "DELETE /v1/lists/{id}/members/{contactId}": "removeListMember",
    }  # fmt: skip
    assert operation_name("GET", "/v1/templates/{id}") == "getTemplate"


def test_each_operation_has_a_description() -> None:
    assert [name for name, described in operations() if len(described.get("description", "")) < 10] == []


def test_no_field_has_null_as_its_default() -> None:
    fields = [(name, key, shape) for name, one in SCHEMAS.items() for key, shape in one.get("properties", {}).items()]
    assert len(fields) > 500
    assert [f"{name}.{key}" for name, key, shape in fields if shape.get("default", ...) is None] == []
    assert SCHEMAS["EmailRequest"]["required"] == ["from", "to"]


def test_ids_have_a_pattern_that_their_ids_match() -> None:
    for kind in ids.Kind:
        made = [
            ids.format_id(kind, ids.uuid7()),
            ids.format_id(kind, ids.uuid7(at_ms=0)),
            ids.format_id(kind, ids.uuid7(at_ms=2**48 - 1)),
        ]
        assert all(re.fullmatch(ids.pattern(kind), one) for one in made)
        assert not re.fullmatch(ids.pattern(kind), "x" + made[0])
    of_paths = {
        f"{name} {one['name']}": one["schema"].get("pattern")
        for name, described in operations()
        for one in described.get("parameters", ())
        if one["in"] == "path"
        and one["name"].lower().endswith("id")
        and "/local/sink" not in name
        and "{bounceId}" not in name  # no id of ours
    }
    assert [name for name, pattern in of_paths.items() if pattern is None] == []
    assert of_paths["GET /v1/messages/{id} id"] == ids.pattern(ids.Kind.MESSAGE)
    assert of_paths["GET /v1/templates/{id} id"] == "^[a-z0-9]+(-[a-z0-9]+)*$"
    assert SCHEMAS["Message"]["properties"]["id"]["pattern"] == ids.pattern(ids.Kind.MESSAGE)
    assert SCHEMAS["Contact"]["properties"]["optedOutOf"]["items"]["pattern"] == ids.pattern(ids.Kind.LIST)
    assert ids.pattern(ids.Kind.ALERT_RULE) in str(SCHEMAS["AlertRulesMade"]["properties"]["id"])
    assert "pattern" not in str(SCHEMAS["Contact"]["properties"]["consentBy"])
    assert "pattern" not in str(SCHEMAS["ConversationMessage"]["properties"]["id"])  # received or sent


def test_a_choice_between_fields_is_described() -> None:
    for name, words in {
        "AddressesToCheck": "exactly one of `address` and `addresses`",
        "NewInboundRoute": "exactly one of `address` (claimed) and `domain`",
        "NewBroadcast": "exactly one of `list` and `segment`",
        "EmailRequest": "with `html`, `text` or both, or with a `template`",
        "SendRequest": "with `html`, `text` or both, or with a `template`",
    }.items():
        assert words in SCHEMAS[name]["description"], name


async def test_the_description_of_some_tags_holds_their_operations_and_schemas_alone(api: Api) -> None:
    answer = await api.get("/v1/openapi.json?tag=Emails&tag=Webhooks")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    part = answer.json
    wanted = {name for name, described in operations() if described["tags"][0] in {"Emails", "Webhooks"}}
    assert {name for name, _ in operations(part)} == wanted
    assert [one["name"] for one in part["tags"]] == ["Emails", "Webhooks"]
    assert set(part["components"]["schemas"]) == schemas_in([part["paths"], part["webhooks"]], SCHEMAS)
    assert set(part["webhooks"]) == set(DOCUMENT["webhooks"])
    assert len(answer.body) < len(client_document(Settings())) / 3

    alone = (await api.get("/v1/openapi.json?tag=Domains")).json
    assert alone["webhooks"] == {}
    wrong = await api.get("/v1/openapi.json?tag=Mails")
    assert (wrong.status, wrong.error["type"], wrong.error["field"]) == (400, "invalid_request", "tag")
    assert "Emails" in wrong.error["message"]
