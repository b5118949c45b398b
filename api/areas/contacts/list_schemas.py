"""Requests and replies of contact lists."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.if_exists import IfExists
from engine.audience.contacts.rules import MAX_DESCRIPTION, MAX_LIST_NAME

MAX_MEMBERS = 1_000  # that one request adds

ListName = Annotated[str, Meta(min_length=1, max_length=MAX_LIST_NAME, description="Unique in any case")]
Description = Annotated[str, Meta(max_length=MAX_DESCRIPTION, description="Empty for none")]


class NewContactList(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A list to create, for `POST /v1/lists`."""

    name: ListName
    description: Description | None = None
    if_exists: IfExists = None


class ContactListChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """The values to change, for `PATCH /v1/lists/{id}`: an omitted value stays, a null description is removed."""

    name: ListName | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET


class ContactList(Struct, rename="camel", kw_only=True):
    """A contact list; `contacts` is the number of its members."""

    id: str
    name: str
    description: str | None
    contacts: int
    created_at: str
    updated_at: str


class ContactListPage(Struct, rename="camel"):
    """Contact lists, newest first. `nextCursor` is null on the last page."""

    data: list[ContactList]
    next_cursor: str | None


class NewMembers(Struct, forbid_unknown_fields=True, kw_only=True):
    """Contacts to add to a list, for `POST /v1/lists/{id}/members`."""

    contacts: Annotated[
        list[Annotated[str, Meta(max_length=100, description="The id of a contact")]],
        Meta(min_length=1, max_length=MAX_MEMBERS),
    ]


class MembersReply(Struct, rename="camel"):
    """The number of contacts that were added and of those that were members; and the ids that are no contact's."""

    added: int
    already: int
    not_found: list[str]
