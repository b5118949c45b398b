"""The arguments of the tools. The schemas that agents see are made of these types."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Limit = Annotated[int, Meta(ge=1, le=50, description="The most entries to return")]
Before = Annotated[str | None, Meta(description="`nextCursor` of the previous page")]
Address = Annotated[str, Meta(min_length=3, max_length=320)]
Domain = Annotated[str, Meta(min_length=1, max_length=253)]
Moment = Annotated[str, Meta(max_length=40)]
Tag = Annotated[str, Meta(min_length=1, max_length=64)]
Slug = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
MessageId = Annotated[str, Meta(pattern=r"^msg_[0-7][0-9a-hjkmnp-tv-z]{25}$", description="The id of a message")]
Days = Annotated[int, Meta(ge=1, le=90, description="Calendar days (UTC), today included")]
Words = Annotated[str, Meta(min_length=1, max_length=200)]
Body = Annotated[str, Meta(max_length=200_000)]
Recipients = Annotated[list[Address], Meta(min_length=1, max_length=10)]


class Arguments(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The arguments of a tool."""


class PageArguments(Arguments, kw_only=True):
    """A page of a list, newest first."""

    limit: Limit = 20
    before: Before = None


class SearchMessages(PageArguments, kw_only=True):
    """Filters of sent messages; all that are given must match."""

    search: Annotated[Words | None, Meta(description="Anywhere in the subject, the sender or a recipient")] = None
    to: Annotated[Address | None, Meta(description="Any recipient")] = None
    status: Annotated[
        Literal[
            "queued", "sending", "delivered", "bounced", "complained", "failed", "rejected", "scheduled", "canceled"
        ]
        | None,
        Meta(description="The status of the message"),
    ] = None
    tag: Tag | None = None
    from_: Annotated[Moment | None, Meta(description="Created at this time or later, ISO 8601 with `Z`")] = None
    until: Annotated[Moment | None, Meta(description="Created before this time, ISO 8601 with `Z`")] = None


class GetMessage(Arguments, kw_only=True):
    """A sent message."""

    id: MessageId
    include_html: Annotated[bool, Meta(description="Also return the HTML body, which is long")] = False


class SearchReceived(PageArguments, kw_only=True):
    """Filters of received messages; all that are given must match."""

    search: Annotated[Words | None, Meta(description="Anywhere in the subject, the sender or the recipient")] = None
    sender: Annotated[Address | None, Meta(description="The address of From")] = None
    address: Annotated[Address | None, Meta(description="The address of yours that received it")] = None
    read: bool | None = None
    spam: bool | None = None


class GetReceived(Arguments, kw_only=True):
    """A received message."""

    id: Annotated[str, Meta(pattern=r"^imsg_[0-7][0-9a-hjkmnp-tv-z]{25}$")]
    include_html: Annotated[bool, Meta(description="Also return the HTML body, which is long")] = False


class ListDomains(Arguments, kw_only=True):
    """The first 100 domains."""


class GetDomain(Arguments, kw_only=True):
    """A sending domain."""

    id: Annotated[str, Meta(pattern=r"^dom_[0-7][0-9a-hjkmnp-tv-z]{25}$", description="From `list_domains`")]


class CheckSuppression(Arguments, kw_only=True):
    """An address."""

    address: Address


class GetStatistics(Arguments, kw_only=True):
    """The period and filters of the counts."""

    days: Days = 30
    bucket: Literal["day", "hour"] = "day"
    domain: Annotated[Domain | None, Meta(description="The sending domain")] = None
    stream: Slug | None = None
    tag: Tag | None = None


class GetDeliverability(Arguments, kw_only=True):
    """The period and grouping of the rates."""

    days: Days = 7
    group_by: Literal["domain", "tag"] = "domain"
    limit: Limit = 20


class GetReceivers(Arguments, kw_only=True):
    """The receivers to list."""

    domain: Annotated[Domain | None, Meta(description="Only the receiver of this recipient domain")] = None


class ListTemplates(PageArguments, kw_only=True):
    """Filters of templates."""

    search: Annotated[Words | None, Meta(description="Text in the id, the name or the subject")] = None


class GetTemplate(Arguments, kw_only=True):
    """A template."""

    id: Slug


class PreviewTemplate(Arguments, kw_only=True):
    """A template and the values to render it with."""

    id: Slug
    variables: Annotated[dict[str, str] | None, Meta(description="Values by name")] = None
    data: Annotated[dict[str, Any] | None, Meta(description="Nested values: lists and objects")] = None


class ListDeliveries(PageArguments, kw_only=True):
    """Filters of the deliveries of a webhook endpoint."""

    id: Annotated[str, Meta(pattern=r"^whk_[0-7][0-9a-hjkmnp-tv-z]{25}$", description="From `list_webhooks`")]
    state: Literal["delivered", "failed", "pending"] | None = None


class SearchDocs(Arguments, kw_only=True):
    """Name the words to search for."""

    query: Words
    limit: Annotated[int, Meta(ge=1, le=20)] = 8


class ReadDocs(Arguments, kw_only=True):
    """A page of the documentation."""

    page: Annotated[
        str, Meta(max_length=100, pattern=r"^[a-z0-9-]+(/[a-z0-9-]+)*$", description="From `search_docs`: `webhooks`")
    ]


class ExplainError(Arguments, kw_only=True):
    """A type of error."""

    type: Annotated[str, Meta(max_length=40, pattern="^[a-z_]+$", description="The `type` of an error: `suppressed`")]


class NoArguments(Arguments, kw_only=True):
    """No arguments."""


class SendEmail(Arguments, kw_only=True):
    """An email with `text`, `html` or both, or with a `template`."""

    from_: Annotated[Address, Meta(description="An address of a verified domain: `Shop <shop@example.com>`")]
    to: Recipients
    cc: Recipients | None = None
    bcc: Recipients | None = None
    reply_to: Address | None = None
    subject: Annotated[str, Meta(max_length=998)] | None = None
    text: Body | None = None
    html: Body | None = None
    template: Annotated[Slug | None, Meta(description="Instead of `text` and `html`")] = None
    variables: Annotated[dict[str, str] | None, Meta(description="Values for the template, by name")] = None
    data: Annotated[dict[str, Any] | None, Meta(description="Nested values for the template")] = None
    stream: Slug | None = None
    tags: Annotated[list[Tag], Meta(max_length=10)] | None = None
    scheduled_at: Annotated[Moment | None, Meta(description="Send at this time: ISO 8601 with `Z`")] = None
    dry_run: Annotated[bool, Meta(description="Show what would be sent, and get the token that sends it")] = False
    token: Annotated[
        Annotated[str, Meta(min_length=1, max_length=60)] | None,
        Meta(description="The `token` of a dry run with the same arguments"),
    ] = None


class CancelMessage(Arguments, kw_only=True):
    """A scheduled message."""

    id: MessageId


class GetApproval(Arguments, kw_only=True):
    """A send that a person decides on."""

    id: Annotated[str, Meta(pattern=r"^ags_[0-7][0-9a-hjkmnp-tv-z]{25}$", description="From `send_email`")]
