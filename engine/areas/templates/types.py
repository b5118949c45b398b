"""Templates as they are stored, compiled and rendered."""

from datetime import datetime

from msgspec import Struct

from engine.mail.template import CompiledTemplate

MAX_SLUG = 64
MAX_SUBJECT = 998  # characters, as in a send
# Mailbox providers cut a message off near 100 KB, so nobody writes a page of a million characters by hand; and an
# account may hold many templates and more versions, all of which stay.
MAX_CONTENT = 1_000_000
MAX_VARIABLES = 200
MAX_VALUE = 5000  # characters, as in a send
MAX_DESCRIPTION = 500


class Variable(Struct, frozen=True):
    """A declared variable. `default` stands in where a send gives no value; a required one without it refuses."""

    name: str
    required: bool = False
    default: str | None = None
    description: str | None = None


class TemplateContent(Struct, frozen=True):
    """What one version says, to the byte."""

    subject: str | None
    html: str | None
    text: str | None
    variables: tuple[Variable, ...]


class Notice(Struct, frozen=True, omit_defaults=True):
    """Something that will probably not do what its author wants; the template works all the same."""

    code: str
    message: str
    variable: str | None = None


class CheckedContent(Struct, frozen=True):
    """Content that compiles, with what is odd about it."""

    content: TemplateContent
    template: CompiledTemplate
    warnings: tuple[Notice, ...]


class Version(Struct, frozen=True):
    """One published version, ready to render."""

    slug: str
    version: int
    template: CompiledTemplate
    defaults: dict[str, str]
    required: tuple[str, ...]  # names that a send must give: required ones without a default


class Rendered(Struct, frozen=True):
    """What a template came to with its values; `subject` is "" where the template has none."""

    subject: str
    text: str | None
    html: str | None


class TemplateListRow(Struct, frozen=True):
    """A template as the list shows it; `version` is the latest."""

    slug: str
    name: str | None
    version: int
    subject: str | None
    created_at: datetime
    updated_at: datetime


class TemplateWithContent(Struct, frozen=True):
    """A template with the content of its latest version."""

    slug: str
    name: str | None
    version: int
    subject: str | None
    html: str | None
    text: str | None
    variables: str  # JSON
    created_at: datetime
    updated_at: datetime


class VersionRow(Struct, frozen=True):
    """One version as it was published."""

    slug: str
    version: int
    subject: str | None
    html: str | None
    text: str | None
    variables: str  # JSON
    created_at: datetime


class TemplateSlug(Struct, frozen=True):
    """What is known of a slug that has ever been used: its latest version, and whether it is deleted."""

    slug: str
    name: str | None
    version: int
    deleted_at: datetime | None


class TemplateRows(Struct, frozen=True):
    """Templates newest first, and whether older ones exist."""

    rows: list[TemplateListRow]
    has_more: bool


class VersionPage(Struct, frozen=True):
    """Versions newest first, and whether older ones exist."""

    rows: list[VersionRow]
    has_more: bool
