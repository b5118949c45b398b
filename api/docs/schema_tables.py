"""Describe JSON schemas as rows: name, type, whether it is required, text, bounds and example of each property."""

from typing import Any, Final

from msgspec import Struct

_BOUNDS: Final = (
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("maxProperties", "at most {} entries"),
)
MAX_DEPTH: Final = 6

Schema = dict[str, Any]


class PropertyRow(Struct, frozen=True):
    """One property of an object, with the properties of the objects in it."""

    name: str
    kind: str
    required: bool
    text: str
    facts: tuple[str, ...]
    example: object
    children: "tuple[PropertyRow, ...]"


class SchemaReader:
    """Resolves the references of one OpenAPI document."""

    def __init__(self, components: dict[str, Schema]) -> None:
        self._components = components

    def resolved(self, schema: Schema) -> Schema:
        """Return the schema that a reference names; what stands beside the reference wins."""
        reference = schema.get("$ref")
        if reference is None:
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self._components[reference.rsplit("/", 1)[-1]], **beside}

    def rows(self, schema: Schema, depth: int = 0) -> tuple[PropertyRow, ...]:
        """Return the rows of an object, of the object in a list, or of the choice among several."""
        inner = self._object_in(schema)
        if inner is None or depth >= MAX_DEPTH:
            return ()
        required = set(inner.get("required", ()))
        return tuple(
            self._row(name, shape, required=name in required, depth=depth)
            for name, shape in inner.get("properties", {}).items()
        )

    def _row(self, name: str, given: Schema, *, required: bool, depth: int) -> PropertyRow:
        shape = self.resolved(given)
        return PropertyRow(
            name=name,
            kind=self.kind(given),
            required=required,
            text=shape.get("description", "").split("\n\n")[0],
            facts=self._facts(shape),
            example=next(iter(shape.get("examples", ())), None),
            children=self.rows(given, depth + 1),
        )

    def _object_in(self, given: Schema) -> Schema | None:
        shape = self.resolved(given)
        if "properties" in shape:
            return shape
        if "items" in shape:
            return self._object_in(shape["items"])
        if isinstance(shape.get("additionalProperties"), dict):
            return self._object_in(shape["additionalProperties"])
        for choice in (*shape.get("anyOf", ()), *shape.get("allOf", ())):
            found = self._object_in(choice)
            if found is not None:
                return found
        return None

    def kind(self, given: Schema) -> str:
        """Return the type in words, such as `string`, `list of object` or `integer or null`."""
        shape = self.resolved(given)
        if "anyOf" in shape:
            kinds = dict.fromkeys(self.kind(choice) for choice in shape["anyOf"])
            return " or ".join(kinds)
        if "const" in shape:
            return repr(shape["const"]).replace("'", '"')
        if "enum" in shape:
            return "string" if all(isinstance(one, str) for one in shape["enum"]) else "value"
        if shape.get("type") == "array":
            return f"list of {self.kind(shape['items'])}" if shape.get("items") else "list"
        if isinstance(shape.get("type"), list):
            return " or ".join(shape["type"])
        return str(shape.get("type", "any"))

    def _facts(self, shape: Schema) -> tuple[str, ...]:
        plain = self._without_null(shape)
        facts = [text.format(f"{plain[key]:,}") for key, text in _BOUNDS if key in plain and plain[key] != 1]
        if plain.get("minLength") == 1 or plain.get("minItems") == 1:
            facts.insert(0, "not empty")
        choices = plain.get("enum") or self.resolved(plain.get("items") or {}).get("enum")
        if choices:
            facts.append("one of " + ", ".join(f"`{one}`" for one in choices))
        if plain.get("default") not in (None, [], {}, "") and "default" in plain:
            facts.append(f"default `{plain['default']}`")
        return tuple(facts)

    def _without_null(self, shape: Schema) -> Schema:
        choices = [self.resolved(one) for one in shape.get("anyOf", ()) if one != {"type": "null"}]
        return {**shape, **choices[0]} if len(choices) == 1 else shape

    def example(self, given: Schema, depth: int = 0) -> object:
        """Return an example of a value: its own, its default, or one made of the examples of its properties."""
        shape = self._without_null(self.resolved(given))
        for key in ("examples", "enum"):
            if shape.get(key):
                return shape[key][0]
        if "const" in shape:
            return shape["const"]
        if "properties" in shape and depth < MAX_DEPTH:
            return {name: self.example(one, depth + 1) for name, one in shape["properties"].items()}
        if shape.get("type") == "array":
            return [self.example(shape["items"], depth + 1)] if shape.get("items") else []
        if shape.get("anyOf"):
            return self.example(shape["anyOf"][0], depth + 1)
        return shape.get("default", _PLAIN_EXAMPLES.get(str(shape.get("type")), None))


_PLAIN_EXAMPLES: Final[dict[str, object]] = {
    "string": "text", "integer": 1, "number": 0.5, "boolean": True, "object": {}, "null": None,
}  # fmt: skip
