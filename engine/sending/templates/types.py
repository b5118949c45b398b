"""Define templates as stored, compiled and rendered."""

from datetime import datetime

from msgspec import Struct

from engine.mail.parts import MailAttachment
from engine.mail.template import CompiledTemplate

MAX_SLUG = 64
MAX_SUBJECT = 998  # characters, as in a send
# Gmail clips messages near 100 KB, so a real template is far smaller; versions are stored forever, so their size needs
# a limit.
MAX_CONTENT = 1_000_000
MAX_VARIABLES = 200
MAX_VALUE = 5000  # characters, as in a send
MAX_DESCRIPTION = 500
MAX_LABEL = 120  # characters of a name
MAX_LAYOUT = 200_000  # characters of a layout's HTML, and of its text
MAX_LAYOUT_USES = 200  # templates that use one layout; a change of the layout publishes all of them in one transaction


class Variable(Struct, frozen=True):
    """A declared variable. `default` is used if a send gives no value; a required one without it is an error."""

    name: str
    required: bool = False
    default: str | None = None
    description: str | None = None


class TemplateContent(Struct, frozen=True):
    """The content of one version, exactly as given; `layout` is the id of the layout that it uses.

    `blocks` is the stored document from which the HTML was made; None for HTML that was written by hand.
    """

    subject: str | None
    html: str | None
    text: str | None
    variables: tuple[Variable, ...]
    layout: str | None = None
    blocks: str | None = None


class LayoutContent(Struct, frozen=True):
    """The content of one version of a layout, exactly as given; unsaved content has no slug or version."""

    html: str
    text: str | None
    variables: tuple[Variable, ...]
    slug: str = ""
    version: int = 0


class Notice(Struct, frozen=True, omit_defaults=True):
    """A warning about a template that works but probably not as intended."""

    code: str
    message: str
    variable: str | None = None


class CheckedContent(Struct, frozen=True):
    """Content with its layout, its compiled form, which includes the layout, and its warnings."""

    content: TemplateContent
    layout: LayoutContent | None
    template: CompiledTemplate
    warnings: tuple[Notice, ...]


class CheckedLayout(Struct, frozen=True):
    """The content of a layout with its warnings."""

    content: LayoutContent
    warnings: tuple[Notice, ...]


class Version(Struct, frozen=True):
    """A published version, ready to render; `template` includes the layout."""

    slug: str
    version: int
    template: CompiledTemplate
    defaults: dict[str, str]
    required: tuple[str, ...]  # names that a send must give
    files: tuple[MailAttachment, ...] = ()  # the images that each message carries


class Rendered(Struct, frozen=True):
    """A rendered template; `subject` is "" if the template has none."""

    subject: str
    text: str | None
    html: str | None


class TemplateListRow(Struct, frozen=True):
    """A template of the list; `version` is the latest."""

    slug: str
    name: str | None
    version: int
    subject: str | None
    layout: str | None
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
    blocks: str | None  # JSON
    layout: str | None
    layout_version: int | None
    layout_html: str | None
    layout_text: str | None
    layout_variables: str | None  # JSON
    created_at: datetime
    updated_at: datetime


class VersionRow(Struct, frozen=True):
    """A version as published, with the version of its layout."""

    slug: str
    version: int
    subject: str | None
    html: str | None
    text: str | None
    variables: str  # JSON
    blocks: str | None  # JSON
    layout: str | None
    layout_version: int | None
    layout_html: str | None
    layout_text: str | None
    layout_variables: str | None  # JSON
    created_at: datetime


class VersionListRow(Struct, frozen=True):
    """A version of the list; of its layout only the name and version."""

    slug: str
    version: int
    subject: str | None
    html: str | None
    text: str | None
    variables: str  # JSON
    blocks: str | None  # JSON
    layout: str | None
    layout_version: int | None
    created_at: datetime


class TemplateSlug(Struct, frozen=True):
    """The latest version of a slug that is or was used; `deleted_at` is set if it is deleted."""

    slug: str
    name: str | None
    version: int
    deleted_at: datetime | None


class TemplateRows(Struct, frozen=True):
    """A page of templates, newest first; `has_more` is True if older ones exist."""

    rows: list[TemplateListRow]
    has_more: bool


class VersionPage(Struct, frozen=True):
    """A page of versions, newest first; `has_more` is True if older ones exist."""

    rows: list[VersionListRow]
    has_more: bool


class LayoutRow(Struct, frozen=True):
    """A layout with the content of its latest version."""

    slug: str
    name: str | None
    version: int
    html: str
    text: str | None
    variables: str  # JSON
    created_at: datetime
    updated_at: datetime


class LayoutListRow(Struct, frozen=True):
    """A layout of the list; `version` is the latest, `templates` the number of templates that use it."""

    slug: str
    name: str | None
    version: int
    templates: int
    created_at: datetime
    updated_at: datetime


class LayoutRows(Struct, frozen=True):
    """A page of layouts, newest first; `has_more` is True if older ones exist."""

    rows: list[LayoutListRow]
    has_more: bool
