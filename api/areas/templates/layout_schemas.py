"""Requests and replies of layouts."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from api.areas.templates.schemas import Data, Label, Number, Values, Variables
from api.http.if_exists import IfExists
from engine.sending.emails.types import Slug
from engine.sending.templates.types import MAX_LAYOUT, Notice, Variable

LayoutHtml = Annotated[
    str,
    Meta(
        max_length=MAX_LAYOUT,
        description="The HTML around the content of a template, with one `{{{content}}}` outside of sections. Other "
        "tags work as in a template",
        examples=["<html><body>{{{content}}}<p>Shop Ltd.</p></body></html>"],
    ),
]
LayoutText = Annotated[
    str,
    Meta(
        max_length=MAX_LAYOUT,
        description="The text around the text of a template, with one `{{{content}}}`; null: no layout text",
        examples=["{{{content}}}\n\nShop Ltd."],
    ),
]


class LayoutIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A new layout. Without an `id` it gets one from its name; null counts as omitted."""

    id: Slug | None = None
    name: Label | None = None
    html: LayoutHtml
    text: LayoutText | None = None
    variables: Variables | None = None
    if_exists: IfExists = None


class LayoutPatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The fields to change: an omitted field stays, null clears it.

    Changed content becomes the next version, and each template that uses the layout gets its next version with it.
    """

    name: Label | UnsetType | None = UNSET
    html: LayoutHtml | UnsetType = UNSET
    text: LayoutText | UnsetType | None = UNSET
    variables: Variables | UnsetType | None = UNSET
    if_version: Annotated[
        Number | None,
        Meta(description="The version that the change was made from: 409 if another one is the latest by now"),
    ] = None


class LayoutPreviewIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A layout to render without storing it, around the latest version of a template or around a sample text."""

    html: LayoutHtml
    text: LayoutText | None = None
    variables: Variables | None = None
    template: Annotated[Slug | None, Meta(description="The id of the template to show; null: a sample text")] = None
    values: Values | None = None
    data: Data | None = None


class Layout(Struct, rename="camel", kw_only=True):
    """A layout with its latest version, the templates that use it, and warnings about its content."""

    id: str
    name: str | None
    version: int
    html: str
    text: str | None
    variables: list[Variable]
    templates: list[str]
    warnings: list[Notice]
    created_at: str
    updated_at: str


class LayoutListed(Struct, rename="camel", kw_only=True):
    """A layout as the list shows it; `templates` is the number of templates that use it."""

    id: str
    name: str | None
    version: int
    templates: int
    created_at: str
    updated_at: str


class LayoutPage(Struct, rename="camel"):
    """Layouts, newest first. `nextCursor` is null on the last page."""

    data: list[LayoutListed]
    next_cursor: str | None
