"""Describe validation errors of msgspec in sentences for clients of the API.

msgspec names the expected Python type and cannot name the entry of an object that is wrong, so this module reads both
from the declared type. It runs for invalid requests only, so it need not be fast.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct, ValidationError, inspect

from engine.base.errors import shown
from engine.base.suggest import nearest

MAX_READ = 1_000  # characters at each end of msgspec's sentence: matching one of 14 MB takes a second
SLUG_WORDS = "lower-case letters and digits in groups joined by single hyphens"
_PATTERNS = {r"^[a-z0-9]+(-[a-z0-9]+)*$": SLUG_WORDS}
_AT = re.compile(r" - at `(key` in `)?\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_ENTRY = "..."  # how msgspec writes the place of an entry of an object
_NO_TYPE = inspect.AnyType()
UNKNOWN = "is not a known field"


class ShapeFault(Struct, frozen=True):
    """A validation error.

    `path` is such as `to[1]` or `metadata.order`, or "" for the whole value; `words` is a predicate: "must be a
    string". `meant` is the known field that an unknown one probably means.
    """

    path: str
    words: str
    meant: str | None = None

    def sentence(self, path: str) -> str:
        """Return the error as a sentence; `path` is the path of the value as the client knows it."""
        if self.words != UNKNOWN:
            return f"`{path}` {self.words}."
        return f"Unknown field `{path}`." + ("" if self.meant is None else f" Did you mean `{self.meant}`?")


def fault_of(error: ValidationError, shape: Any, given: object) -> ShapeFault:
    """Translate a validation error of the type `shape`.

    `given` is the value as plain data, or None if the caller does not have it.
    """
    sentence = _short(str(error))
    at = _AT.search(sentence)
    path, kind = _walked(_type_of(shape), given, at[2] if at else "")
    for pattern, words in ((_UNKNOWN, UNKNOWN), (_MISSING, "is required")):
        named = pattern.search(sentence)
        if named:
            meant = nearest(named[1], _fields_of(kind)) if words == UNKNOWN else None
            name = shown(named[1])
            return ShapeFault(f"{path}.{name}" if path else name, words, meant)
    if at and at[1]:
        return ShapeFault(path, f"must name each entry by {_described(_names_of(kind))}")
    wanted = _described(kind) + _wrapping(kind, sentence)
    return ShapeFault(
        path, f"must be {wanted}" if wanted else f"is not usable: {shown(sentence[: at.start() if at else None])}"
    )


def _short(sentence: str) -> str:
    """Cut a long name of a field from the middle: the sentence begins with the fault and ends with the place."""
    return sentence if len(sentence) <= 2 * MAX_READ else sentence[:MAX_READ] + sentence[-MAX_READ:]


@lru_cache(maxsize=256)
def _type_of(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _walked(kind: inspect.Type, given: object, path: str) -> tuple[str, inspect.Type]:
    """Return the path with the names of entries filled in, and the type at its end."""
    found = ""
    for name, place in _STEP.findall(path):
        if name:
            kind = _tagged(kind, given, name)
            kind, given = _field(kind, name), _item(given, name)
            found += f".{name}"
        elif place == _ENTRY:
            value = _one_of(kind, inspect.DictType)
            kind = _NO_TYPE if value is None else value.value_type
            key = _faulty(kind, given)
            given = None if key is None else _item(given, key)
            found += "" if key is None else f".{shown(key)}"
        else:
            item = _one_of(kind, inspect.ListType)
            kind = _NO_TYPE if item is None else item.item_type
            given = given[int(place)] if isinstance(given, list) and int(place) < len(given) else None
            found += f"[{place}]"
    return found.lstrip("."), kind


def _field(kind: inspect.Type, name: str) -> inspect.Type:
    struct = _one_of(kind, inspect.StructType)
    fields = () if struct is None else struct.fields
    return next((field.type for field in fields if field.encode_name == name), _NO_TYPE)


def _tagged(kind: inspect.Type, given: object, name: str) -> inspect.Type:
    """Return the alternative whose tag the value has; for the tag itself, an object that may have each of the tags."""
    structs = [one for one in _alternatives(kind) if isinstance(one, inspect.StructType) and one.tag_field is not None]
    if len(structs) < 2:
        return kind
    if name == structs[0].tag_field:
        tags = inspect.Field(name, name, inspect.LiteralType(tuple(one.tag for one in structs)))
        return inspect.StructType(structs[0].cls, (tags,))
    tag = _item(given, str(structs[0].tag_field))
    return next((one for one in structs if one.tag == tag), kind)


def _fields_of(kind: inspect.Type) -> list[str]:
    struct = _one_of(kind, inspect.StructType)
    return [] if struct is None else [field.encode_name for field in struct.fields]


def _wrapping(kind: inspect.Type, sentence: str) -> str:
    """Say which field takes the list that the client sent in place of the object."""
    struct = _one_of(kind, inspect.StructType)
    if struct is None or "got `array`" not in sentence:
        return ""
    needed = [field for field in struct.fields if field.required]
    if len(needed) != 1 or _one_of(needed[0].type, inspect.ListType) is None:
        return ""
    return f" that has the list in `{needed[0].encode_name}`"


def _item(given: object, name: str) -> object:
    return given.get(name) if isinstance(given, dict) else None


def _faulty(kind: inspect.Type, given: object) -> str | None:
    """Return the name of the first entry of an object that is not a string within its bounds."""
    text = _one_of(kind, inspect.StrType)
    if text is None or not isinstance(given, dict):
        return None
    return next((name for name, value in given.items() if not _fits(text, value)), None)


def _fits(text: inspect.StrType, value: object) -> bool:
    return isinstance(value, str) and (text.min_length or 0) <= len(value) <= (text.max_length or len(value))


def _one_of(kind: inspect.Type, wanted: type) -> Any:
    """Return the alternative of a type that has the class `wanted`, or None."""
    return next((one for one in _alternatives(kind) if isinstance(one, wanted)), None)


def _names_of(kind: inspect.Type) -> inspect.Type:
    found = _one_of(kind, inspect.DictType)
    return _NO_TYPE if found is None else found.key_type


def _alternatives(kind: inspect.Type) -> Iterable[inspect.Type]:
    """Yield the types that a value may have, without null, which stands for an absent value."""
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    elif not isinstance(kind, inspect.NoneType):
        yield kind


def _described(kind: inspect.Type) -> str:
    """Describe a type: `a string of 3 to 320 characters or a list of at least 1 item`; "" if unknown."""
    return " or ".join(dict.fromkeys(filter(None, map(_words, _alternatives(kind)))))


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.StrType():
            bounds = _bounds(kind.min_length, kind.max_length, "character")
            form = "" if kind.pattern is None else _PATTERNS.get(kind.pattern, f"the form {kind.pattern}")
            return "a string" + (f" of {bounds}" if bounds else "") + (f": {form}" if form else "")
        case inspect.IntType():
            return "a whole number" + _range(kind.ge, kind.le)
        case inspect.FloatType():
            return "a number" + _range(kind.ge, kind.le)
        case inspect.BoolType():
            return "true or false"
        case inspect.ListType():
            bounds = _bounds(kind.min_length, kind.max_length, "item")
            return "a list" + (f" of {bounds}" if bounds else "")
        case inspect.DictType() | inspect.StructType():
            return "an object"
        case inspect.EnumType():
            return "one of " + ", ".join(str(one.value) for one in kind.cls)
        case inspect.LiteralType():
            return "one of " + ", ".join(map(str, kind.values))
        case _:
            return ""


def _bounds(minimum: int | None, maximum: int | None, unit: str) -> str:
    if minimum and maximum:
        return f"{minimum} to {maximum} {unit}s"
    if maximum is not None:
        return f"at most {maximum} {unit}{'' if maximum == 1 else 's'}"
    return f"at least {minimum} {unit}{'' if minimum == 1 else 's'}" if minimum else ""


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if maximum is not None:
        return f" of at most {maximum}"
    return f" of at least {minimum}" if minimum is not None else ""
