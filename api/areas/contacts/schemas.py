"""Requests and replies of contacts."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.http.paging import PageQuery
from engine.audience.contacts.confirmation_mail import Locale
from engine.audience.contacts.import_rules import MAX_ROWS
from engine.audience.contacts.rules import MAX_FIELDS, MAX_NAME
from engine.audience.contacts.types import Consent
from engine.sending.emails.types import AddressText, Slug
from engine.sending.suppressions.types import Reason

MAX_LISTS = 100  # of a new contact

Name = Annotated[str, Meta(max_length=MAX_NAME, description="Empty for none")]
NewFields = Annotated[
    dict[str, Any],
    Meta(
        description=f"At most {MAX_FIELDS} strings, numbers and booleans; 16 KiB in all",
        examples=[{"plan": "pro", "seats": 12, "trial": False}],
    ),
]
ChangedFields = Annotated[
    dict[str, Any], Meta(description="Fields to set; null removes one, the others stay", examples=[{"plan": None}])
]
ListId = Annotated[str, Meta(max_length=100, description="The id of a list")]


class ContactsQuery(PageQuery, forbid_unknown_fields=True, kw_only=True):
    """The query of a page, newest first."""

    search: (
        Annotated[str, Meta(min_length=1, max_length=320, description="Anywhere in address or name, any case")] | None
    ) = None
    list: ListId | None = None
    email: Annotated[AddressText, Meta(description="The contact with this address alone, in any spelling")] | None = (
        None
    )


class NewContactIn(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A contact to create, for `POST /v1/contacts`."""

    email: AddressText
    consent: Consent
    name: Name | None = None
    fields: NewFields = {}
    lists: Annotated[list[ListId], Meta(max_length=MAX_LISTS, description="Lists to add the contact to")] = []
    confirm: Annotated[
        bool,
        Meta(
            description="Mail the contact a link to confirm, as a send with all its checks and limits; needs "
            "`from` and the scope `emails:send`. Broadcasts skip the contact until it confirms: its consent becomes "
            "`signed_up`"
        ),
    ] = False
    from_: Annotated[AddressText, Meta(description="With `confirm`: the From of the mail")] | None = field(
        name="from", default=None
    )
    stream: Annotated[Slug, Meta(description="With `confirm`: default `transactional`")] | None = None
    locale: Annotated[Locale, Meta(description="With `confirm`: the language of the mail")] = "en"


class ConfirmationIn(Struct, forbid_unknown_fields=True, kw_only=True):
    """Request to mail another confirmation link, for `POST /v1/contacts/{id}/confirmation`."""

    from_: Annotated[AddressText, Meta(description="The From of the mail")] = field(name="from")
    stream: Annotated[Slug, Meta(description="Default: transactional")] | None = None
    locale: Annotated[Locale, Meta(description="The language of the mail")] = "en"


class ContactChange(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The values to change, for `PATCH /v1/contacts/{id}`: an omitted value stays, a null name is removed."""

    name: Name | UnsetType | None = UNSET
    fields: ChangedFields | UnsetType = UNSET


class Contact(Struct, rename="camel", kw_only=True):
    """A contact. While `confirmed` is false, a confirmation was asked for by mail, and broadcasts skip the contact."""

    id: str
    email: str
    name: str | None
    fields: dict[str, str | int | float | bool]
    consent: Consent
    consent_at: str
    consent_by: str
    confirmed: bool
    lists: list[str]
    suppressed: bool
    suppression_reason: Reason | None
    opted_out_of: list[str]
    created_at: str
    updated_at: str


class ContactPage(Struct, rename="camel"):
    """Contacts, newest first. `nextCursor` is null on the last page."""

    data: list[Contact]
    next_cursor: str | None


class ContactImportIn(Struct, forbid_unknown_fields=True, kw_only=True):
    """Rows of `email`, `name` and `fields`, merged by address; `consent` applies to all of them.

    An invalid row does not affect others.
    """

    contacts: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MAX_ROWS)]
    consent: Consent
    list: ListId | None = None


class RefusedContact(Struct):
    """A row that was refused; `error` is what a single request would return."""

    index: int
    error: dict[str, Any]


class ContactImportReply(Struct, rename="camel"):
    """The numbers of contacts, each address once: created, changed or added to the list, or left as they were.

    `suppressed` are those of them whose address is suppressed. `overLimit` were not created: they would have exceeded
    the plan's limit.
    """

    created: int
    updated: int
    unchanged: int
    suppressed: int
    over_limit: int
    invalid: list[RefusedContact]
