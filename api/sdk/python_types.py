"""Write the types of the Python client: a TypedDict for each schema, with the API's own field names."""

import keyword
import re
from typing import Any, Final

from api.sdk.document import Schema, reference

HEAD: Final = '''"""The objects of the API, generated from its description. Keys are the field names of the API."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, NotRequired, TypedDict
'''
_SCALARS: Final = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
}  # fmt: skip
# A TypedDict class can't declare these names: keywords, and types that later annotations of the class use.
_TAKEN: Final = frozenset({"str", "int", "float", "bool", "Any", "Dict", "List", "Literal", "NotRequired"})
_SPACES: Final = re.compile(r"\s+")
WIDTH: Final = 120


class TypeWriter:
    """The source of the types module; inline objects become types named after their place."""

    def __init__(self, schemas: dict[str, Schema]) -> None:
        self._schemas = schemas
        self._extra: list[str] = []

    def module(self) -> str:
        """Return the source of the module."""
        parts = [self._definition(name, schema) for name, schema in self._schemas.items()]
        return "\n\n\n".join([HEAD.rstrip(), *_in_order([part.rstrip() for part in (*parts, *self._extra)])]) + "\n"

    def annotation(self, schema: Schema, place: str, *, lists: str = "List", maps: str = "Dict") -> str:
        """Return the annotation of a value; `place` names a type for an object without a name of its own."""
        name = reference(schema)
        if name is not None:
            return name
        options = schema.get("anyOf")
        if options is not None:
            found = [self.annotation(one, place, lists=lists, maps=maps) for one in options]
            return " | ".join(dict.fromkeys(sorted(found, key=lambda one: one == "None")))
        if "enum" in schema or "const" in schema:
            return _literal(schema.get("enum", [schema.get("const")]))
        kind = schema.get("type")
        if isinstance(kind, list):
            return " | ".join(self.annotation({**schema, "type": one}, place, lists=lists, maps=maps) for one in kind)
        if kind == "array":
            return f"{lists}[{self.annotation(schema.get('items', {}), place)}]"
        if kind == "object":
            return self._object(schema, place, maps)
        return _SCALARS.get(str(kind), "Any")

    def _object(self, schema: Schema, place: str, maps: str) -> str:
        if schema.get("properties"):
            self._extra.append(self._definition(place, schema))
            return place
        inner = schema.get("additionalProperties")
        value = self.annotation(inner, place) if isinstance(inner, dict) else "Any"
        return f"{maps}[str, {value}]"

    def _definition(self, name: str, schema: Schema) -> str:
        if "properties" not in schema:
            return _alias(name, self.annotation(schema, f"{name}Value"), schema)
        required = set(schema.get("required", ()))
        fields = {
            key: self._field(key, inner, name, is_required=key in required)
            for key, inner in schema["properties"].items()
        }
        odd = {key: value for key, value in fields.items() if _needs_quotes(key)}
        lines: list[str] = []
        base = "TypedDict"
        if odd:
            base = f"_{name}Names"
            lines += [f"{base} = TypedDict(", f'    "{base}",', "    {"]
            lines += [f'        "{key}": "{_requoted(value)}",' for key, value in odd.items()] + ["    },", ")", "", ""]
        lines += [f"class {name}({base}):", *docstring(_described(schema, odd), "    ")]
        for key, value in fields.items():
            if key not in odd:
                text = str(schema["properties"][key].get("description", ""))
                gap = [""] if lines[-1].endswith('"""') else []
                lines += [*gap, *_annotated(key, value), *docstring(text, "    ")]
        return "\n".join(lines)

    def _field(self, key: str, schema: Schema, parent: str, *, is_required: bool) -> str:
        found = self.annotation(schema, f"{parent}{key[0].upper()}{key[1:]}")
        return found if is_required else f"NotRequired[{found}]"


def _annotated(key: str, value: str) -> list[str]:
    """Return the lines of a field; a list of many types that is too long for one line is divided as ruff divides it."""
    line = f"    {key}: {value}"
    if len(line) <= WIDTH:
        return [line]
    start, _, rest = value.partition("[")
    inner = rest.removesuffix("]")
    if len(inner) + 8 <= WIDTH:
        return [f"    {key}: {start}[", f"        {inner}", "    ]"]
    first, *others = inner.split(" | ")
    return [f"    {key}: {start}[", f"        {first}", *(f"        | {one}" for one in others), "    ]"]


def _described(schema: Schema, odd: dict[str, str]) -> str:
    own = str(schema.get("description") or "An object of the API.")
    named = [f"`{key}`: {text}" for key in odd if (text := schema["properties"][key].get("description"))]
    return "\n\n".join([own, *named])


def _needs_quotes(key: str) -> bool:
    return not key.isidentifier() or keyword.iskeyword(key) or key in _TAKEN


def docstring(text: str, indent: str) -> list[str]:
    """Return the lines of a docstring, wrapped; none for an empty text."""
    paragraphs = [_SPACES.sub(" ", one).strip() for one in text.split("\n\n") if one.strip()]
    if not paragraphs:
        return []
    safe = [one.replace("\\", "\\\\").replace('"""', "'''") for one in paragraphs]
    if safe[-1].endswith('"'):
        safe[-1] += "."
    width = WIDTH - len(indent) - 6
    lines = [line for number, one in enumerate(safe) for line in ([""] if number else []) + wrapped(one, width)]
    lines[0] = '"""' + lines[0]
    if len(lines) == 1:
        return [f'{indent}{lines[0]}"""']
    return [*(f"{indent}{line}".rstrip() for line in lines), f'{indent}"""']


def wrapped(text: str, width: int) -> list[str]:
    """Return the words of a text in lines of at most `width` characters."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def _literal(values: list[Any]) -> str:
    return f"Literal[{', '.join('None' if one is None else _quoted(one) for one in values)}]"


def _quoted(value: object) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)


def _alias(name: str, value: str, schema: Schema) -> str:
    line = f"{name} = {value}"
    if len(line) > WIDTH and value.startswith("Literal["):
        options = value.removeprefix("Literal[").removesuffix("]").split(", ")
        line = "\n".join([f"{name} = Literal[", *(f"    {one}," for one in options), "]"])
    elif len(line) > WIDTH:
        line = "\n".join([f"{name} = (", *(f"    {one}" for one in value.replace(" | ", "\n| ").split("\n")), ")"])
    return "\n".join([line, *docstring(str(schema.get("description", "")), "")])


def _requoted(annotation: str) -> str:
    return annotation.replace('"', "'")


def _in_order(parts: list[str]) -> list[str]:
    """Return the literals first: a definition that isn't an annotation may use only what stands above it."""
    literals = [part for part in parts if " = Literal[" in part.split("\n", 1)[0]]
    classes = [part for part in parts if part.startswith(("class ", "_"))]
    return [*literals, *classes, *(part for part in parts if part not in literals and part not in classes)]
