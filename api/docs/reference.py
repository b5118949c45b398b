"""Describe the operations of one tag, as HTML and as Markdown, from the OpenAPI document."""

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any, Final, NamedTuple

from msgspec import structs

from api.docs.highlight import highlighted
from api.docs.markdown import Heading, code_blocks
from api.docs.samples import samples
from api.docs.schema_tables import PropertyRow, Schema, SchemaReader
from api.http.auth import CSRF_HEADER

_CODE: Final = re.compile(r"`([^`]+)`")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
METHODS: Final = ("get", "post", "put", "patch", "delete")
_MAX_EXAMPLE: Final = 4_000  # characters of an example body; longer ones are cut at a line


class ReferencePage(NamedTuple):
    """The operations of one tag: HTML, Markdown and the headings for the navigation."""

    html: str
    markdown: str
    headings: tuple[Heading, ...]


def slug_of(tag: str) -> str:
    """Return the last part of a tag's address."""
    return _OTHER.sub("-", tag.lower()).strip("-")


def anchor_of(method: str, path: str) -> str:
    """Return the anchor of an operation: `post-v1-emails`."""
    return _OTHER.sub("-", f"{method} {path}".lower()).strip("-")


def by_tag(document: dict[str, Any]) -> dict[str, list[tuple[str, str, Schema]]]:
    """Return the operations of each tag, as method, path and description, in the document's order."""
    found: dict[str, list[tuple[str, str, Schema]]] = {}
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            if method in METHODS:
                found.setdefault(described["tags"][0], []).append((method.upper(), path, described))
    return dict(sorted(found.items()))


def reference_page(
    operations: Iterable[tuple[str, str, Schema]], reader: SchemaReader, base_url: str, docs: str
) -> ReferencePage:
    """Return the page of some operations; `docs` is the address of the site, for links to errors."""
    html, markdown, headings = [], [], []
    for number, (method, path, described) in enumerate(operations):
        part = _Operation(method, path, described, reader, base_url, docs)
        html.append(part.html(number))
        markdown.append(part.markdown())
        headings.append(Heading(2, anchor_of(method, path), described["summary"]))
    return ReferencePage("\n".join(html), "\n".join(markdown), tuple(headings))


def names_of(operations: Iterable[tuple[str, str, Schema]]) -> dict[str, tuple[str, ...]]:
    """Return the identifiers of each operation by its anchor: `sendEmail`, `POST /v1/emails`."""
    return {
        anchor_of(method, path): (described["operationId"], f"{method} {path}")
        for method, path, described in operations
    }


class _Operation:
    """One operation of the document, while its page is written."""

    def __init__(
        self, method: str, path: str, described: Schema, reader: SchemaReader, base_url: str, docs: str
    ) -> None:
        self._method, self._path, self._described = method, path, described
        self._reader, self._docs = reader, docs
        # The token of sessions is told once, in the introduction: most readers have a key.
        self._parameters = [one for one in described.get("parameters", []) if one["name"] != CSRF_HEADER]
        self._body = _json_schema(described.get("requestBody", {}))
        self._samples = samples(method, path, described, reader, base_url)

    def _replies(self) -> list[tuple[str, Schema | None, str]]:
        """Return the replies that are no errors: status, schema if it is JSON, and the media types."""
        return [
            (status, _json_schema(answer), ", ".join(answer.get("content", {})))
            for status, answer in self._described["responses"].items()
            if status < "400"
        ]

    def _errors(self) -> list[tuple[str, list[str]]]:
        return [
            (status, _CODE.findall(answer["description"]))
            for status, answer in self._described["responses"].items()
            if status >= "400"
        ]

    def html(self, number: int) -> str:
        """Return the section of the operation."""
        described = self._described
        anchor, title = anchor_of(self._method, self._path), escape(described["summary"])
        endpoint = (
            f'<span class="method {self._method.lower()}">{self._method}</span> <code>{escape(self._path)}</code>'
        )
        parts = [
            f'<section class="operation"><a id="{described["operationId"]}"></a><h2 id="{anchor}">{title}</h2>',
            f'<p class="endpoint">{endpoint}</p>',
        ]
        if described.get("description"):
            parts.append(f"<p>{inline(described['description'])}</p>")
        parts.append(code_blocks(self._samples, f"o{number}"))
        for title, where in (("Path", "path"), ("Query", "query"), ("Headers", "header")):
            rows = [self._parameter_row(one) for one in self._parameters if one["in"] == where]
            parts.append(_rows_html(title, rows))
        if self._body is not None:
            parts.append(_rows_html("Body", self._reader.rows(self._body)))
        for status, schema, media in self._replies():
            parts.append(self._reply_html(status, schema, media))
        parts.append(self._errors_html())
        return "\n".join(part for part in parts if part) + "</section>"

    def _parameter_row(self, given: Schema) -> PropertyRow:
        schema = {**given["schema"], **({"description": given["description"]} if "description" in given else {})}
        (row,) = self._reader.rows({"properties": {given["name"]: schema}})
        return PropertyRow(
            name=row.name, kind=row.kind, required=given["required"], text=row.text, facts=row.facts,
            example=row.example, children=(),
        )  # fmt: skip

    def _reply_html(self, status: str, schema: Schema | None, media: str) -> str:
        if schema is None:
            words = f"{media}" if media else "no body"
            return f"<h3>Response {status}</h3><p>{escape(words)}</p>"
        rows = _given(self._reader.rows(schema))
        example = highlighted(_shortened(self._reader.example(schema)), "json")
        shown = f'<details><summary>Example</summary><pre tabindex="0"><code>{example}</code></pre></details>'
        return (_rows_html(f"Response {status}", rows) or f"<h3>Response {status}</h3>") + (shown if rows else "")

    def _errors_html(self) -> str:
        lines = [
            f"<li>{status}: "
            + ", ".join(f'<a href="{self._docs}/errors#{kind}"><code>{kind}</code></a>' for kind in kinds)
            + "</li>"
            for status, kinds in self._errors()
        ]
        return f"<details><summary>Errors</summary><ul>{''.join(lines)}</ul></details>" if lines else ""

    def markdown(self) -> str:
        """Return the section as Markdown."""
        described = self._described
        lines = [f"## {described['summary']}", "", f"`{self._method} {self._path}`", ""]
        if described.get("description"):
            lines += [described["description"], ""]
        lines += ["```sh", self._samples[0].code.rstrip("\n"), "```", ""]
        for title, where in (("Path", "path"), ("Query", "query"), ("Headers", "header")):
            lines += _rows_markdown(title, [self._parameter_row(one) for one in self._parameters if one["in"] == where])
        if self._body is not None:
            lines += _rows_markdown("Body", self._reader.rows(self._body))
        for status, schema, media in self._replies():
            rows = _given(self._reader.rows(schema)) if schema is not None else ()
            lines += _rows_markdown(f"Response {status}", rows) or [
                f"### Response {status}",
                "",
                media or "no body",
                "",
            ]
        lines += ["### Errors", ""]
        lines += [f"- {status}: {', '.join(f'`{kind}`' for kind in kinds)}" for status, kinds in self._errors()]
        return "\n".join(lines) + "\n"


def event_section(name: str, described: Schema, reader: SchemaReader) -> ReferencePage:
    """Return the section of one webhook event: when it happens, its fields and an example."""
    schema = _json_schema(described["requestBody"]) or {}
    rows = reader.rows(schema)
    example = _shortened(reader.example(schema))
    anchor = _OTHER.sub("-", name)
    text: str = described.get("summary") or described.get("description") or ""
    html = (
        f'<section class="operation"><h2 id="{anchor}"><code>{escape(name)}</code></h2><p>{inline(text)}</p>'
        f'<pre tabindex="0"><code>{highlighted(example, "json")}</code></pre>{_rows_html("Body", rows)}</section>'
    )
    markdown = "\n".join(
        [f"## {name}", "", text, "", "```json", example.rstrip(), "```", "", *_rows_markdown("Body", rows)]
    )
    return ReferencePage(html, markdown, (Heading(2, anchor, name),))


def _given(rows: tuple[PropertyRow, ...]) -> tuple[PropertyRow, ...]:
    """Return the rows of an answer: what it must hold is of no interest to its reader."""
    return tuple(structs.replace(row, required=False, children=_given(row.children)) for row in rows)


def _json_schema(given: Schema) -> Schema | None:
    content = given.get("content", {})
    plain: Schema | None = content.get("application/json", {}).get("schema")
    if plain is not None:
        return plain
    return next((one["x-item-schema"] for one in content.values() if "x-item-schema" in one), None)


def _shortened(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) <= _MAX_EXAMPLE:
        return text + "\n"
    return text[: text.rfind("\n", 0, _MAX_EXAMPLE)] + "\n  …\n"


def inline(text: str) -> str:
    """Return a text of the document as HTML, with its code words."""
    return _CODE.sub(lambda found: f"<code>{found[1]}</code>", escape(text, quote=False))


def _rows_html(title: str, rows: Iterable[PropertyRow]) -> str:
    items = "".join(_row_html(row) for row in rows)
    return f'<h3>{title}</h3><dl class="properties">{items}</dl>' if items else ""


def _row_html(row: PropertyRow) -> str:
    needed = ' <span class="required">required</span>' if row.required else ""
    words = [inline(row.text if row.text.endswith(".") else f"{row.text}.")] if row.text else []
    if row.facts:
        facts = "; ".join(row.facts)
        words.append(f'<span class="facts">{inline(facts[0].upper() + facts[1:])}.</span>')
    if row.example is not None:
        words.append(f"Example: <code>{escape(json.dumps(row.example, ensure_ascii=False))}</code>")
    children = ""
    if row.children:
        inner = "".join(_row_html(one) for one in row.children)
        children = (
            f'<details><summary>Fields of {escape(row.name)}</summary><dl class="properties">{inner}</dl></details>'
        )
    return (
        f'<div><dt><code>{escape(row.name)}</code> <span class="kind">{escape(row.kind)}</span>{needed}</dt>'
        f"<dd>{' '.join(words)}{children}</dd></div>"
    )


def _rows_markdown(title: str, rows: Iterable[PropertyRow]) -> list[str]:
    lines = [line for row in rows for line in _row_markdown(row, 0)]
    return [f"### {title}", "", *lines, ""] if lines else []


def _row_markdown(row: PropertyRow, depth: int) -> list[str]:
    facts = "; ".join(part for part in (row.kind, "required" if row.required else "", *row.facts) if part)
    line = f"{'  ' * depth}- `{row.name}` ({facts})" + (f": {row.text}" if row.text else "")
    return [line, *(part for child in row.children for part in _row_markdown(child, depth + 1))]
