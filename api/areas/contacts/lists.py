"""`/v1/lists`: creating, listing, reading, changing and deleting contact lists, and their members."""

from uuid import UUID

from api.areas.contacts.list_schemas import (
    ContactList,
    ContactListChange,
    ContactListPage,
    MembersReply,
    NewContactList,
    NewMembers,
)
from api.http import if_exists
from api.http.if_exists import Existing
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.audience.contacts import lists, lists_store
from engine.audience.contacts.types import ContactListRow
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid


async def create(call: Call, body: NewContactList) -> ContactList:
    """Create a list."""

    async def make() -> ContactList:
        row = await lists.create(
            call.services.pool, call.account_id, name=body.name, description=body.description, actor=call.actor
        )
        return _list(row)

    limits = LimitedKeys.WHOLE_ACCOUNT
    found = Existing(read, change, ContactListChange, ids.Kind.LIST, change_limits=limits)
    return await if_exists.made(call, body, found, make)


async def list_lists(call: Call, page: Page) -> ContactListPage:
    """Return a page of the account's lists."""
    rows = await lists_store.LIST.fetch(call.services.pool, call.account_id, page.below, page.probe)
    return ContactListPage(*page.of(rows, _list))


async def read(call: Call) -> ContactList:
    """Return one list."""
    return _list(await lists_store.read(call.services.pool, call.account_id, call.id))


async def change(call: Call, body: ContactListChange) -> ContactList:
    """Change the given values of a list."""
    row = await lists.change(
        call.services.pool,
        call.account_id,
        call.id,
        name=body.name,
        description=body.description,
        actor=call.actor,
    )
    return _list(row)


async def delete(call: Call) -> None:
    """Delete a list."""
    await lists.delete(call.services.pool, call.account_id, call.id, actor=call.actor)


async def add_members(call: Call, body: NewMembers) -> MembersReply:
    """Add contacts to a list."""
    known, unknown = _contacts(body.contacts)
    result = await lists.add_members(call.services.pool, call.account_id, call.id, known, actor=call.actor)
    missing = set(unknown) | {ids.format_id(ids.Kind.CONTACT, one) for one in result.not_found}
    return MembersReply(
        result.added, result.already, [text for text in dict.fromkeys(body.contacts) if text in missing]
    )


async def remove_member(call: Call) -> None:
    """Remove a contact from a list."""
    await lists.remove_member(call.services.pool, call.account_id, call.id, call.inner_id, actor=call.actor)


def _contacts(texts: list[str]) -> tuple[list[UUID], list[str]]:
    """Return the ids of contacts and those that can be no contact's; raise the 400 for ids of another kind."""
    known, unknown = [], []
    for index, text in enumerate(texts):
        try:
            known.append(ids.parse_id(ids.Kind.CONTACT, text))
        except ids.WrongId as error:
            if not text.startswith(f"{ids.Kind.CONTACT.value}_"):
                field = f"contacts[{index}]"
                raise invalid(field, f"`{field}` must be the id of a contact: {error}.") from None
            unknown.append(text)
    return known, unknown


def _list(row: ContactListRow) -> ContactList:
    return ContactList(
        id=ids.format_id(ids.Kind.LIST, row.id),
        name=row.name,
        description=row.description,
        contacts=row.contacts,
        created_at=clock.iso(row.created_at),
        updated_at=clock.iso(row.updated_at),
    )


_KEYS = Area(
    "Contacts",
    reads=("contacts:read",),
    writes=("contacts:write",),
    limited_keys=LimitedKeys.WHOLE_ACCOUNT,
    id_of=ids.Kind.LIST,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/lists",
        list_lists,
        "List contact lists",
        _KEYS,
        page=ids.Kind.LIST,
        limited_keys=LimitedKeys.FREE,
        lagging=True,
    ),
    Operation(
        "POST",
        "/v1/lists",
        create,
        "Create a contact list",
        _KEYS,
        limited_keys=LimitedKeys.FREE,
        success=201,
        also=(200,),
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation("GET", "/v1/lists/{id}", read, "Read a contact list", _KEYS, limited_keys=LimitedKeys.FREE),
    Operation(
        "PATCH",
        "/v1/lists/{id}",
        change,
        "Change the name or description of a contact list",
        _KEYS,
        refusals=(ErrorType.CONFLICT,),
    ),
    Operation(
        "DELETE",
        "/v1/lists/{id}",
        delete,
        "Delete a contact list and keep its contacts",
        _KEYS,
        note="A list that a segment, a scheduled broadcast or one in review names can't be deleted: 409 "
        "`invalid_state`.",
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation("POST", "/v1/lists/{id}/members", add_members, "Add up to 1,000 contacts to a list", _KEYS),
    Operation(
        "DELETE",
        "/v1/lists/{id}/members/{contactId}",
        remove_member,
        "Remove a contact from a list; 204 also if it was no member",
        _KEYS,
        inner_id_of=ids.Kind.CONTACT,
    ),
)
