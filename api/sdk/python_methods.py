"""Write the methods of the Python client: a class for each group of operations, asynchronous; the other is derived."""

from typing import Final

from api.http.client_names import class_name, python_name
from api.sdk.document import DRY_FIELD, ClientField, ClientOperation, Schema, reference, resolved
from api.sdk.python_types import TypeWriter, docstring, wrapped

HEAD: Final = '''"""The operations of the API, generated from its description: a class for each group of them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Dict, List, Literal, overload

from . import types
from .async_catch_up import catch_up
from .async_tail import AsyncTail
from .async_transport import AsyncDownload, AsyncTransport, pages
from .values import OMIT, Omit, given, path_segment, with_key, with_keys
'''


# Methods of one group that are no operations.
_OWN: Final = {
    "events": '''
    async def catch_up(
        self,
        after: int,
        handler: Callable[[types.WebhookEvent], Awaitable[None]],
        *,
        type: Sequence[str] | Omit = OMIT,
    ) -> int:
        """Call `handler` with each event of the log after `after`, in the form of a webhook's body, oldest first.

        Returns the `seq` to pass as `after` the next time. One handler so serves webhooks, and catches up after an
        outage of your endpoint: drop what it has seen by `id`. `after` is 0, or the `seq` of the last event handled.
        `type`: the types to hand over; by default all, also those that webhooks do not deliver. An exception of the
        handler ends the call. Raises EventsLostError if the log no longer has the events after `after`.
        """

        async def fetch(cursor: int) -> types.EventPage:
            return await self.list(after=cursor, limit=1000, type=type)

        return await catch_up(fetch, after, handler)''',
}


class MethodWriter:
    """The source of the classes."""

    def __init__(self, types: TypeWriter, schemas: dict[str, Schema]) -> None:
        self._types = types
        self._schemas = schemas

    def group(self, name: str, operations: list[ClientOperation]) -> str:
        """Return the class of one group."""
        title = class_name(name)
        lines = [
            f"class Async{title}:",
            f'    """`client.{name}`: {_listed(operations)}."""',
            "",
            "    def __init__(self, transport: AsyncTransport) -> None:",
            "        self._transport = transport",
        ]
        for one in operations:
            lines += ["", *self._methods(one)]
        return "\n".join([*lines, *([_OWN[name]] if name in _OWN else [])])

    def _methods(self, one: ClientOperation) -> list[str]:
        arguments = self._arguments(one)
        if one.kind == "tail":
            return self._stream(one, arguments, f"AsyncTail(self._transport, {_path(one)}, params).events()")
        if one.kind == "export":
            records = self._stream(one, arguments, f"self._transport.records({_path(one)}, params)")
            return [*records, "", *self._file(one, arguments)]
        if one.kind == "download":
            return self._download(one, arguments)
        found = self._call(one, arguments)
        if one.cursor is not None:
            found += ["", *self._iterator(one, [line for line in arguments if not line.startswith(f"{one.cursor}:")])]
        return found

    def _arguments(self, one: ClientOperation) -> list[str]:
        """Return the parameters of the method: those of the path, then keywords, required ones first."""
        positional = [f"{_path_argument(one, name)}: str" for name in one.path_fields]
        fields = (*one.body, *one.query)
        if one.raw_type is not None:
            positional.append("content: bytes")
        required = [f"{python_name(field.wire)}: {self._input(one, field)}" for field in fields if field.required]
        optional = [
            f"{python_name(field.wire)}: {self._input(one, field)} | Omit = OMIT"
            for field in fields
            if not field.required
        ]
        keywords = [*required, *optional]
        return [*positional, *(["*"] if keywords else []), *keywords]

    def _input(self, one: ClientOperation, field: ClientField) -> str:
        place = f"{class_name(one.group)}{class_name(one.name)}{field.wire[0].upper()}{field.wire[1:]}"
        found = self._annotation(field.schema, place, lists="Sequence", maps="Mapping")
        return f"{found} | datetime" if _is_instant(field.schema) else found

    def _annotation(self, schema: Schema, place: str, *, lists: str = "Sequence", maps: str = "Mapping") -> str:
        text = self._types.annotation(schema, place, lists=lists, maps=maps)
        return qualified(text, {*self._schemas, place})

    def _overloads(self, one: ClientOperation, arguments: list[str]) -> list[str]:
        """Return the signatures by `dry_run`, which decides the type of the reply; none if it does not."""
        if one.dry_reply is None:
            return []
        name = python_name(DRY_FIELD)
        place = next(number for number, line in enumerate(arguments) if line.startswith(f"{name}:"))
        real = tuple(reply for reply in one.replies if reply is not one.dry_reply)
        lines: list[str] = []
        for replies, argument in (
            (real, arguments[place].replace("bool", "Literal[False]")),
            ((one.dry_reply,), f"{name}: Literal[True]"),
            (one.replies, arguments[place].removesuffix(" | Omit = OMIT")),
        ):
            own = [*arguments[:place], argument, *arguments[place + 1 :]]
            head = _signature("async def", one.name, own, self._reply(one, replies))
            lines += ["    @overload", *head[:-1], f"{head[-1]} ...", ""]
        return lines

    def _reply(self, one: ClientOperation, replies: tuple[Schema, ...]) -> str:
        place = f"{class_name(one.group)}{class_name(one.name)}Reply"
        found = [self._annotation(schema, place) for schema in replies]
        if one.is_optional_reply or not found:
            found.append("None")
        return " | ".join(dict.fromkeys(found))

    def _call(self, one: ClientOperation, arguments: list[str]) -> list[str]:
        reply = self._reply(one, one.replies)
        call = [f'"{one.method}"', _path(one)]
        call += ["params=params"] if one.query else []
        call += [f"body={_body(one)}"] if one.body else []
        call += ["content=content", f'content_type="{one.raw_type}"'] if one.raw_type else []
        call += ["repeatable=True"] if one.is_repeatable else []
        begin = "" if reply == "None" else f"reply: {reply} = "
        lines = [
            f"        {begin}await self._transport.request(",
            *(f"            {part}," for part in call),
            "        )",
        ]
        values = [*_values("body", one.body), *_values("params", one.query)]
        ending = [] if reply == "None" else ["        return reply"]
        head = [*self._overloads(one, arguments), *_signature("async def", one.name, arguments, reply)]
        return [*head, *_docstring(one), *values, *lines, *ending]

    def _stream(self, one: ClientOperation, arguments: list[str], call: str) -> list[str]:
        head = _signature("def", one.name, arguments, f"AsyncIterator[{self._reply(one, one.replies)}]")
        return [*head, *_docstring(one), *_values("params", one.query, always=True), f"        return {call}"]

    def _file(self, one: ClientOperation, arguments: list[str]) -> list[str]:
        kinds = 'file_format: Literal["csv", "ndjson"] = "csv"'
        own = [*arguments, kinds] if "*" in arguments else [*arguments, "*", kinds]
        text = f"Return the same records as a file: CSV, or one JSON object per line.\n\n`{one.method} {one.path}`."
        values = _values("params", one.query, always=True, more='"format": file_format')
        call = f"        return AsyncDownload(self._transport, {_path(one)}, params)"
        head = _signature("def", f"{one.name}_file", own, "AsyncDownload")
        return [*head, *docstring(text, "        "), *values, call]

    def _download(self, one: ClientOperation, arguments: list[str]) -> list[str]:
        params = ", params" if one.query else ""
        call = [f"        path = {_path(one)}", f"        return AsyncDownload(self._transport, path{params})"]
        head = _signature("def", one.name, arguments, "AsyncDownload")
        return [*head, *_docstring(one), *_values("params", one.query), *call]

    def _iterator(self, one: ClientOperation, arguments: list[str]) -> list[str]:
        """Return the method that yields the rows of all pages."""
        page = resolved(one.replies[0], self._schemas)
        items = page["properties"]["data"].get("items", {})
        row = self._annotation(items, f"{reference(one.replies[0])}Row")
        own = [] if arguments == ["*"] else arguments
        if own and own[-1] == "*":
            own = own[:-1]
        call = [_path_argument(one, name) for name in one.path_fields]
        names = [python_name(field.wire) for field in (*one.body, *one.query) if field.wire != one.cursor]
        call += [f"{name}={name}" for name in names]
        cursor = "OMIT if cursor is None else cursor"
        if _is_integer(one, one.cursor):
            cursor = "OMIT if cursor is None else int(cursor)"
        call.append(f"{one.cursor}={cursor}")
        item = _page_name(one)
        name = "iterate" if one.name == "list" else f"iterate_{one.name}"
        lines = [
            "",
            f"        async def fetch(cursor: str | None) -> {item}:",
            f"            return await self.{one.name}(",
            *(f"                {part}," for part in call),
            "            )",
            "",
            "        return pages(fetch)",
        ]
        doc = docstring(f"Yield the rows of all pages of `{one.name}`, which are requested as needed.", "        ")
        return [*_signature("def", name, own, f"AsyncIterator[{row}]"), *doc, *lines]


def qualified(annotation: str, names: set[str]) -> str:
    """Return the annotation with the module before each name of a type."""
    parts: list[str] = []
    word = ""
    quoted = False
    for char in annotation + " ":
        if char.isalnum() or char == "_":
            word += char
            continue
        parts.append(f"types.{word}" if word in names and not quoted else word)
        parts.append(char)
        quoted ^= char == '"'
        word = ""
    return "".join(parts)[:-1]


def _path_argument(one: ClientOperation, name: str) -> str:
    """Return the argument of a path parameter: `current_id` where the body has an `id` too."""
    taken = any(field.wire == name for field in (*one.body, *one.query))
    return python_name(f"current_{name}" if taken else name)


def _page_name(one: ClientOperation) -> str:
    return f"types.{reference(one.replies[0])}"


def _is_integer(one: ClientOperation, wire: str | None) -> bool:
    found = next(field.schema for field in one.query if field.wire == wire)
    return found.get("type") == "integer" or any(part.get("type") == "integer" for part in found.get("anyOf", ()))


def _is_instant(schema: Schema) -> bool:
    return any(part.get("format") == "date-time" for part in (schema, *schema.get("anyOf", ())))


def _listed(operations: list[ClientOperation]) -> str:
    names = [f"`{one.name}`" for one in operations]
    shown = names if len(names) < 6 else [*names[:4], "and more"]
    return ", ".join(shown)


def _signature(kind: str, name: str, arguments: list[str], reply: str) -> list[str]:
    if not arguments:
        return [f"    {kind} {name}(self) -> {reply}:"]
    return [f"    {kind} {name}(", "        self,", *(f"        {one}," for one in arguments), f"    ) -> {reply}:"]


def _docstring(one: ClientOperation) -> list[str]:
    found = docstring(one.text, "        ")
    told = [(python_name(field.wire), field.text) for field in (*one.body, *one.query) if field.text]
    if not told:
        return found
    lines = [] if len(found) == 1 else found[:-1]
    if len(found) == 1:
        lines = [found[0].removesuffix('"""')]
    lines += ["", "        Arguments:"]
    for name, text in told:
        first, *others = wrapped(" ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''"), 96)
        lines += [f"            {name}: {first}", *(f"                {line}" for line in others)]
    return [*lines, '        """']


def _path(one: ClientOperation) -> str:
    if not one.path_fields:
        return f'"{one.path}"'
    text = one.path
    for name in one.path_fields:
        text = text.replace("{" + name + "}", "{path_segment(" + _path_argument(one, name) + ")}")
    return f'f"{text}"'


def _values(name: str, fields: tuple[ClientField, ...], *, always: bool = False, more: str = "") -> list[str]:
    """Return the assignment of a dict that holds the arguments by their names on the wire."""
    parts = [f'"{field.wire}": {python_name(field.wire)}' for field in fields] + ([more] if more else [])
    if parts:
        kind = "Mapping[str, Any]"
        return [f"        {name}: {kind} = {{", *(f"            {part}," for part in parts), "        }"]
    return [f"        {name}: dict[str, Any] = {{}}"] if always else []


def _body(one: ClientOperation) -> str:
    if one.keyed_items:
        return f'with_keys(given(body), "{one.keyed_items}")'
    return "with_key(given(body))" if one.keyed else "given(body)"
