"""The OpenAPI document describes every event type that webhooks post."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from api.areas.webhooks.event_schemas import DETAILS, event_schema, webhooks
from engine.base import clock, ids
from engine.events.webhooks.rules import EVENT_TYPES, body
from engine.ledger import log


def properties_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, one in schema.get("properties", {}).items():
        yield name, one
        yield from properties_of(one)
        yield from properties_of(one.get("items", {}))


def test_every_posted_type_is_described() -> None:
    assert set(DETAILS) == set(EVENT_TYPES)


@pytest.mark.parametrize("kind", DETAILS)
def test_every_property_has_a_description_and_an_example_that_its_schema_allows(kind: str) -> None:
    for name, schema in properties_of(event_schema(kind, DETAILS[kind])):
        assert schema["description"], name
        if "properties" not in schema:
            Draft202012Validator(schema).validate(schema["examples"][0])


@pytest.mark.parametrize("kind", DETAILS)
def test_the_example_of_a_body_satisfies_its_schema(kind: str) -> None:
    content = webhooks()[kind]["post"]["requestBody"]["content"]["application/json"]
    Draft202012Validator(content["schema"]).validate(content["example"])


@pytest.mark.parametrize("kind", DETAILS)
def test_a_body_built_from_a_stored_payload_satisfies_the_schema(kind: str) -> None:
    content = webhooks()[kind]["post"]["requestBody"]["content"]["application/json"]
    data, at = content["example"]["data"], clock.now()
    entry = log.Entry(ids.uuid7(), kind, log.detail_text(data["detail"]), at, None, data["messageId"])
    posted = body(ids.uuid7(), 7, at, log.payload_of(entry))

    Draft202012Validator(content["schema"]).validate(orjson.loads(posted))
