"""Render templates with nested data: lists, objects, numbers and booleans beside the flat values.

`{{a.b}}` reads a member of an object. `{{#items}}…{{/items}}` repeats its content for each item of a list and enters an
object; `{{.}}` is the item itself. A name is looked up from the innermost section outwards, and at last among the flat
values and the top level of the data. Missing names, null, false, "" and [] are empty.

Work is bounded by the steps and by the characters that they print, so nested loops can't multiply without limit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from engine.mail.template import MAX_NAME, MAX_RENDERED, Op, Program, TemplatePart, TooLong, escape

MAX_DATA_BYTES = 64 * 1024  # as compact JSON
MAX_DATA_DEPTH = 8  # objects and lists inside each other, the data itself included
MAX_LIST_ITEMS = 1_000
MAX_STEPS = 100_000  # of one part; about 100 ms

_Place = tuple[Any, ...]  # (place of the parent, key or index); () for the whole
_ENCODER = msgspec.json.Encoder()
_LINE_BREAKS = ("\r", "\n")
_ABSENT = object()
_KINDS: dict[type, str] = {dict: "an object", list: "a list"}


class WrongData(ValueError):  # noqa: N818 - named for what the customer gave
    """The data breaks a limit; `path` names the place inside it, "" for the whole."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


class Unprintable(ValueError):  # noqa: N818 - named for what the value is
    """A tag prints a value that has no text in this part."""

    def __init__(self, part: TemplatePart, name: str, problem: str) -> None:
        super().__init__(f"{part.value}: {{{{{name}}}}} {problem}")
        self.part = part
        self.name = name
        self.problem = problem


class TooManySteps(ValueError):  # noqa: N818 - named for what it has become
    """The loops of a part need more steps than allowed."""

    def __init__(self, part: TemplatePart) -> None:
        super().__init__(f"the loops of the {part.value} need more than {MAX_STEPS} steps")
        self.part = part


class _Loop(Struct):
    """A section being shown: its first step, the step behind it, and the items that are left."""

    start: int
    after: int
    items: Iterator[Any]


def check_data(data: Mapping[str, Any]) -> int:
    """Return the bytes of decoded JSON as JSON; raise WrongData for the first limit that it breaks."""
    size_bytes = _size_bytes(data)
    if size_bytes > MAX_DATA_BYTES:
        raise WrongData("", f"has {size_bytes} bytes as JSON; the limit is {MAX_DATA_BYTES}")
    left: list[tuple[Any, int, _Place]] = [(data, 1, ())]
    while left:
        value, depth, place = left.pop()
        if isinstance(value, str):
            if "\0" in value:
                raise WrongData(_path(place), "contains NUL (U+0000). Remove it")
        elif isinstance(value, dict | list):
            if depth > MAX_DATA_DEPTH:
                raise WrongData(_path(place), f"is nested more than {MAX_DATA_DEPTH} deep. Flatten it")
            left.extend((one, depth + 1, (place, key)) for key, one in _members(value, place))
    return size_bytes


def render_data(program: Program, values: Mapping[str, str], data: Mapping[str, Any]) -> str:
    """Render a part; flat `values` win over `data`. Raises TooLong, TooManySteps and Unprintable."""
    scopes: list[Any] = []
    loops: list[_Loop] = []
    out: list[str] = []
    at = length = 0
    for _ in range(MAX_STEPS):
        while loops and at == loops[-1].after:
            at = _next_item(loops, scopes)
        if at == len(program.steps):
            return "".join(out)
        op, text, after = program.steps[at]
        at += 1
        if op == Op.LITERAL:
            piece = text
        elif op in {Op.SECTION, Op.INVERTED}:
            items = items_of(look_up(text, scopes, values, data))
            if op == Op.INVERTED:
                at = after if items else at
            elif items and at < after:
                loops.append(_Loop(at, after, iter(items)))
                scopes.append(None)
                at = _next_item(loops, scopes)
            else:
                at = after
            continue
        else:
            piece = _printed(program.part, text, look_up(text, scopes, values, data))
            piece = escape(piece) if op == Op.ESCAPED else piece
        out.append(piece)
        length += len(piece)
        if length > MAX_RENDERED:
            raise TooLong(program.part)
    raise TooManySteps(program.part)


def look_up(name: str, scopes: Sequence[Any], values: Mapping[str, str], data: Mapping[str, Any]) -> Any:
    """Return the value of a name, None if there is none: innermost scope first, then `values`, then `data`."""
    if name == ".":
        return scopes[-1] if scopes else None
    first, *rest = name.split(".")
    for scope in reversed(scopes):
        if isinstance(scope, dict) and first in scope:
            return _inside(scope[first], rest)
    flat = values.get(name)
    return _inside(data.get(first), rest) if flat is None else flat


def items_of(value: Any) -> Sequence[Any]:
    """Return the values that a section is shown for: the items of a list, or one value that is not empty."""
    if isinstance(value, list):
        return value
    return () if value is None or value is False or value == "" else (value,)


def names_in(data: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that some tag can read from `data`: every key, and every path of keys from any object."""
    found: set[str] = set()
    left: list[tuple[str, Any]] = [("", data)]
    while left:
        path, value = left.pop()
        if isinstance(value, list):
            left += [("", one) for one in value]
        elif isinstance(value, dict):
            for key, one in value.items():
                inner = f"{path}.{key}" if path else key
                found |= {key, inner}
                left.append((inner if len(inner) < MAX_NAME else "", one))  # no tag holds a longer name
    return frozenset(found)


def _size_bytes(data: Mapping[str, Any]) -> int:
    try:
        return len(_ENCODER.encode(data))
    except RecursionError:
        raise WrongData("", f"is nested more than {MAX_DATA_DEPTH} deep. Flatten it") from None


def _members(value: dict[str, Any] | list[Any], place: _Place) -> Iterable[tuple[str | int, Any]]:
    """Return the keys and values directly inside an object or a list."""
    if isinstance(value, dict):
        if any("\0" in key for key in value):
            raise WrongData(_path(place), "has a name with NUL (U+0000). Remove it")
        return value.items()
    if len(value) > MAX_LIST_ITEMS:
        raise WrongData(_path(place), f"has {len(value)} items; the limit is {MAX_LIST_ITEMS}")
    return enumerate(value)


def _path(place: _Place) -> str:
    """Write a place as in `items[2].name`; "" for the whole."""
    keys: list[str] = []
    while place:
        place, key = place
        keys.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(keys)).removeprefix(".")


def _next_item(loops: list[_Loop], scopes: list[Any]) -> int:
    """Enter the next item of the innermost section, or leave the section; return the step to go on with."""
    loop = loops[-1]
    item = next(loop.items, _ABSENT)
    if item is not _ABSENT:
        scopes[-1] = item
        return loop.start
    loops.pop()
    scopes.pop()
    return loop.after


def _inside(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _printed(part: TemplatePart, name: str, value: Any) -> str:
    """Return the text of a value: numbers as in JSON, `true`, and "" for null, false and nothing."""
    if isinstance(value, str):
        if part is TemplatePart.SUBJECT and any(letter in value for letter in _LINE_BREAKS):
            raise Unprintable(part, name, "contains a line break")
        return value
    if value is None or value is False:
        return ""
    kind = _KINDS.get(type(value))
    if kind is not None:
        raise Unprintable(part, name, f"is {kind}; write {{{{#{name}}}}}…{{{{/{name}}}}} or name a member")
    return _ENCODER.encode(value).decode()
