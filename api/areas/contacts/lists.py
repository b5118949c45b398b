"""`/v1/lists`: creating, listing, reading, changing and deleting contact lists, and their members."""

from uuid import UUID

from api.areas.contacts.list_schemas import (
    ContactList,
    ContactListChange,
    ContactListPage,
    ContactListsQuery,
    MembersReply,
    NewContactList,
    NewMembers,
)
from api.http.dispatch import cursor_id, path_id
from api.http.operation import Access, Call, LimitedKeys, Operation
from engine.audience.contacts import lists, lists_store, store
from engine.audience.contacts.types import ContactListRow
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid

WHAT = lists.WHAT
READ, WRITE = ("contacts:read",), ("contacts:write",)


async def create(call: Call) -> ContactList:
    """Create a list."""
    body: NewContactList = call.body
    row = await lists.create(
        call.services.pool, call.account_id, name=body.name, description=body.description, actor=call.actor
    )
    return _list(row)


async def list_lists(call: Call) -> ContactListPage:
    """Return a page of the account's lists."""
    query: ContactListsQuery = call.query
    before = cursor_id(ids.Kind.LIST, query.before) or store.LAST_ID
    rows = await lists_store.LIST.fetch(call.services.pool, call.account_id, before, query.limit + 1)
    data = [_list(row) for row in rows[: query.limit]]
    return ContactListPage(data, data[-1].id if len(rows) > query.limit else None)


async def read(call: Call) -> ContactList:
    """Return one list."""
    return _list(await lists_store.read(call.services.pool, call.account_id, _named(call)))


async def change(call: Call) -> ContactList:
    """Change the given values of a list."""
    body: ContactListChange = call.body
    row = await lists.change(
        call.services.pool,
        call.account_id,
        _named(call),
        name=body.name,
        description=body.description,
        actor=call.actor,
    )
    return _list(row)


async def delete(call: Call) -> None:
    """Delete a list."""
    await lists.delete(call.services.pool, call.account_id, _named(call), actor=call.actor)


async def add_members(call: Call) -> MembersReply:
    """Add contacts to a list."""
    body: NewMembers = call.body
    known, unknown = _contacts(body.contacts)
    result = await lists.add_members(call.services.pool, call.account_id, _named(call), known, actor=call.actor)
    missing = set(unknown) | {ids.format_id(ids.Kind.CONTACT, one) for one in result.not_found}
    return MembersReply(
        result.added, result.already, [text for text in dict.fromkeys(body.contacts) if text in missing]
    )


async def remove_member(call: Call) -> None:
    """Remove a contact from a list."""
    contact = path_id(ids.Kind.CONTACT, call.path["contactId"], "contact")
    await lists.remove_member(call.services.pool, call.account_id, _named(call), contact, actor=call.actor)


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


def _named(call: Call) -> UUID:
    return path_id(ids.Kind.LIST, call.path["id"], WHAT)


def _list(row: ContactListRow) -> ContactList:
    return ContactList(
        id=ids.format_id(ids.Kind.LIST, row.id),
        name=row.name,
        description=row.description,
        contacts=row.contacts,
        created_at=clock.iso(row.created_at),
        updated_at=clock.iso(row.updated_at),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/lists",
        tag="Contacts",
        summary="List contact lists",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=READ,
        query=ContactListsQuery,
        reply=ContactListPage,
        handler=list_lists,
    ),
    Operation(
        method="POST",
        path="/v1/lists",
        tag="Contacts",
        summary="Create a contact list",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=WRITE,
        success=201,
        request=NewContactList,
        reply=ContactList,
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
        handler=create,
    ),
    Operation(
        method="GET",
        path="/v1/lists/{id}",
        tag="Contacts",
        summary="Read a contact list",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=READ,
        reply=ContactList,
        handler=read,
    ),
    Operation(
        method="PATCH",
        path="/v1/lists/{id}",
        tag="Contacts",
        summary="Change the name or description of a contact list",
        access=Access.KEY,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        scopes=WRITE,
        request=ContactListChange,
        reply=ContactList,
        refusals=(ErrorType.CONFLICT,),
        handler=change,
    ),
    Operation(
        method="DELETE",
        path="/v1/lists/{id}",
        tag="Contacts",
        summary="Delete a contact list and keep its contacts",
        note="A list that a segment, a scheduled broadcast or one in review names can't be deleted: 409 "
        "`invalid_state`.",
        access=Access.KEY,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        scopes=WRITE,
        success=204,
        refusals=(ErrorType.INVALID_STATE,),
        handler=delete,
    ),
    Operation(
        method="POST",
        path="/v1/lists/{id}/members",
        tag="Contacts",
        summary="Add up to 1,000 contacts to a list",
        access=Access.KEY,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        scopes=WRITE,
        request=NewMembers,
        reply=MembersReply,
        handler=add_members,
    ),
    Operation(
        method="DELETE",
        path="/v1/lists/{id}/members/{contactId}",
        tag="Contacts",
        summary="Remove a contact from a list; 204 also if it was no member",
        access=Access.KEY,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        scopes=WRITE,
        success=204,
        handler=remove_member,
    ),
)
