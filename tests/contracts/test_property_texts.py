"""Every property and parameter of the OpenAPI document has a sentence, and an example that its schema takes."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from api.routes import client_document
from engine.base.settings import Settings

DOCUMENT: dict[str, Any] = orjson.loads(client_document(Settings()))
COMPONENTS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def properties() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in COMPONENTS.items():
        for key, shape in schema.get("properties", {}).items():
            yield f"{name}.{key}", shape


def parameters() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, described in methods.items():
            for one in described.get("parameters", ()):
                yield f"{method} {path} {one['name']}", {**one["schema"], **one}


@pytest.mark.parametrize("kind", [properties, parameters], ids=["properties", "parameters"])
def test_each_has_a_description(kind: Any) -> None:
    assert [name for name, shape in kind() if len(shape.get("description", "")) < 4] == []


def test_each_example_is_allowed_by_its_schema() -> None:
    wrong = []
    for name, shape in properties():
        schema = {**shape, "components": {"schemas": COMPONENTS}}
        wrong += [
            f"{name}: {one!r}" for one in shape.get("examples", ()) if not Draft202012Validator(schema).is_valid(one)
        ]
    assert wrong == []


def test_each_plain_value_has_an_example() -> None:
    plain = {"string", "integer", "number", "boolean"}

    def is_plain(shape: dict[str, Any]) -> bool:
        kinds = [shape, *shape.get("anyOf", ())]
        return any(one.get("type") in plain for one in kinds) and not any("$ref" in one for one in kinds)

    lacking = [name for name, shape in properties() if is_plain(shape) and not {"examples", "const"} & set(shape)]
    assert lacking == []
