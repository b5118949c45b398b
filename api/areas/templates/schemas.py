"""Requests and replies of templates."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.if_exists import IfExists
from api.http.paging import PageQuery
from engine.audience.broadcasts.types import MAX_TEST_ADDRESSES
from engine.mail.blocks.types import BlockDocument
from engine.mail.template import MAX_NAME
from engine.sending.emails.types import AddressText, Slug
from engine.sending.templates.types import (
    MAX_CONTENT,
    MAX_DESCRIPTION,
    MAX_LABEL,
    MAX_SUBJECT,
    MAX_VALUE,
    MAX_VARIABLES,
    Notice,
    Variable,
)

Label = Annotated[str, Meta(max_length=MAX_LABEL)]
Subject = Annotated[
    str,
    Meta(
        max_length=MAX_SUBJECT,
        description="One line. `{{name}}` and sections work as in `text`: values are not escaped",
    ),
]
Html = Annotated[
    str,
    Meta(
        max_length=MAX_CONTENT,
        description="`{{name}}` is the escaped value, `{{{name}}}` the value as it is. `{{#name}}…{{/name}}` is shown "
        "if the value is a non-empty string, `{{^name}}…{{/name}}` if it is empty; `{{! … }}` is a comment. With the "
        "`data` of a send, `{{a.b}}` is a member of an object, and a section repeats for each item of a list (`{{.}}` "
        "is the item) or enters an object",
    ),
]
Text = Annotated[str, Meta(max_length=MAX_CONTENT, description="Like `html`, but no value is escaped")]
Number = Annotated[int, Meta(ge=1)]
Values = dict[Annotated[str, Meta(min_length=1, max_length=MAX_NAME)], Annotated[str, Meta(max_length=MAX_VALUE)]]

Data = Annotated[
    dict[str, Any],
    Meta(
        description="Nested values beside the flat ones, as in a send: lists and objects for sections, numbers and "
        "booleans",
        examples=[{"items": [{"name": "Lamp", "price": 19.5}]}],
    ),
]


class VariableIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A variable to declare.

    `default` is used where a send gives no value; without it, a send without a required value is refused.
    """

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_NAME,
            description="The name in tags: letters, digits and `_`; also `.` and `-`, except at the ends",
        ),
    ]
    required: bool | None = None
    default: Annotated[str, Meta(max_length=MAX_VALUE)] | None = None
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION)] | None = None

    def declared(self) -> Variable:
        """Return the variable as it is stored."""
        return Variable(self.name, bool(self.required), self.default, self.description)


Variables = Annotated[list[VariableIn], Meta(max_length=MAX_VARIABLES)]
Layout = Annotated[
    Slug,
    Meta(description="The id of the layout around the content; its latest version, and later each next one"),
]


class TemplatesQuery(PageQuery, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/templates`: newest first."""

    search: (
        Annotated[str, Meta(max_length=100, description="Text in the id, the name or the subject, in any case")] | None
    ) = None


class VersionsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/templates/{id}/versions`: newest first.

    A page of long versions holds fewer than `limit`.
    """

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Annotated[Number | None, Meta(description="`nextCursor` of the previous page: a version")] = None


class TemplateIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A new template.

    Without an `id` it gets one from its name; null counts as omitted. A sendable template has `html` or `text`.
    """

    id: Slug | None = None
    name: Label | None = None
    subject: Subject | None = None
    html: Html | None = None
    text: Text | None = None
    variables: Variables | None = None
    layout: Layout | None = None
    blocks: BlockDocument | None = None
    if_exists: IfExists = None


class TemplatePatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The fields to change: an omitted field stays, null clears it. Changed content becomes the next version.

    `html` without `blocks` sets `blocks` to null: the content is written by hand from then on.
    """

    name: Label | UnsetType | None = UNSET
    subject: Subject | UnsetType | None = UNSET
    html: Html | UnsetType | None = UNSET
    text: Text | UnsetType | None = UNSET
    variables: Variables | UnsetType | None = UNSET
    layout: Layout | UnsetType | None = UNSET
    blocks: BlockDocument | UnsetType | None = UNSET
    if_version: Annotated[
        Number | None,
        Meta(description="The version that the change was made from: 409 if another one is the latest by now"),
    ] = None


class TemplateCopyIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The `id` and `name` of the copy; without a `name` it gets that of the original with "(copy)" behind it, and
    without an `id` one from its name.
    """

    id: Slug | None = None
    name: Label | None = None


class TemplateTestIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Request to mail a template to these addresses; without `version` its latest version."""

    from_: AddressText
    to: Annotated[
        list[AddressText],
        Meta(min_length=1, max_length=MAX_TEST_ADDRESSES, description="Addresses of people on the account's team"),
    ]
    version: Number | None = None
    variables: Values | None = None
    data: Data | None = None
    stream: Annotated[Slug | None, Meta(description="Default: transactional")] = None


class TemplateTestItem(Struct):
    """The result for one address of a test: the message's `id`, or the `error` that a single send would return."""

    to: str
    id: str | None
    status: Literal["queued", "refused"]
    error: dict[str, Any] | UnsetType = UNSET


class TemplateTestReply(Struct):
    """The results of a test, in the order of the request."""

    data: list[TemplateTestItem]


class Template(Struct, rename="camel", kw_only=True):
    """A template with its latest version, and warnings about its content."""

    id: str
    name: str | None
    version: int
    subject: str | None
    html: str | None
    text: str | None
    variables: list[Variable]
    layout: str | None
    layout_version: int | None
    blocks: BlockDocument | None
    warnings: list[Notice]
    created_at: str
    updated_at: str


class TemplateRow(Struct, rename="camel", kw_only=True):
    """A template as the list shows it."""

    id: str
    name: str | None
    version: int
    subject: str | None
    layout: str | None
    created_at: str
    updated_at: str


class TemplatePage(Struct, rename="camel"):
    """Templates, newest first. `nextCursor` is null on the last page."""

    data: list[TemplateRow]
    next_cursor: str | None


class TemplateVersion(Struct, rename="camel", kw_only=True):
    """A version of a template, exactly as it was published.

    A change of its layout publishes a version with the same content and the next `layoutVersion`.
    """

    version: int
    subject: str | None
    html: str | None
    text: str | None
    variables: list[Variable]
    layout: str | None
    layout_version: int | None
    blocks: BlockDocument | None
    created_at: str


class TemplateVersionPage(Struct, rename="camel"):
    """Versions, newest first. `nextCursor` is null on the last page."""

    data: list[TemplateVersion]
    next_cursor: str | None


class PreviewIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The values to render a stored template with; without `version` the latest version is rendered."""

    version: Number | None = None
    variables: Values | None = None
    data: Data | None = None


class UnsavedPreviewIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content to render without storing it: `variables` declares variables, `values` gives their values."""

    subject: Subject | None = None
    html: Html | None = None
    text: Text | None = None
    variables: Variables | None = None
    layout: Annotated[Slug | None, Meta(description="The id of the layout to show the content in")] = None
    blocks: BlockDocument | None = None
    values: Values | None = None
    data: Data | None = None


class BlockSource(Struct, kw_only=True):
    """The content that blocks make, with its variables not yet replaced."""

    html: str
    text: str


class Preview(Struct, kw_only=True):
    """The rendered message. Content that is not stored has neither template nor version."""

    template: str | None
    version: int | None
    subject: str
    html: str | None
    text: str | None
    warnings: list[Notice]
    source: BlockSource | None = None
