"""Create, change and delete contact lists, and add and remove their members, each in one transaction with its event."""

from collections.abc import Collection
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType

from engine.audience.contacts import lists_store, rules, search, store
from engine.audience.contacts.types import ContactListRow
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.plans import CAPS, Plan
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached
from engine.store.database_clock import new_time
from engine.store.queries import Conn

WHAT = lists_store.WHAT


class MembersAdded(Struct, frozen=True):
    """Count the contacts that were added to a list and those that were members; name the unknown ones."""

    added: int
    already: int
    not_found: list[UUID]


async def create(
    pool: asyncpg.Pool, account: UUID, *, name: str, description: str | None = None, actor: str
) -> ContactListRow:
    """Create an empty list; raise the 409 for a name in use, the 403 above the plan's limit."""
    named, described = rules.checked_list_name(name), rules.checked_description(description)
    async with pool.acquire() as connection, connection.transaction():
        totals = await store.lock_totals(connection, account)
        await _refuse_name(connection, account, named)
        limit = CAPS[Plan(totals.plan)].lists
        if limit is not None and totals.lists >= limit:
            raise limit_reached("lists", "contact lists", limit, totals.lists)
        at = await new_time(connection)
        row = await lists_store.INSERT.first(
            connection, account, ids.uuid7_at(at), named, search.folded(named), described, at
        )
        assert row is not None
        await store.ADD_TO_TOTALS.execute(connection, account, 0, 1, 0)
        await _record(connection, account, AccountEvent.LIST_CREATED, row, actor)
    return row


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    list_id: UUID,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    actor: str,
) -> ContactListRow:
    """Change the values that are given and return the list; raise the 404 for an unknown one, the 409 for a name in
    use.
    """
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        row = await lists_store.read(connection, account, list_id)
        named = row.name if isinstance(name, UnsetType) else rules.checked_list_name(name)
        described = row.description if isinstance(description, UnsetType) else rules.checked_description(description)
        if (named, described) == (row.name, row.description):
            return row
        await _refuse_name(connection, account, named, other_than=list_id)
        at = await new_time(connection)
        after = await lists_store.CHANGE.first(connection, account, list_id, named, search.folded(named), described, at)
        assert after is not None
        await _record(connection, account, AccountEvent.LIST_UPDATED, after, actor)
    return after


async def delete(pool: asyncpg.Pool, account: UUID, list_id: UUID, *, actor: str) -> None:
    """Delete a list and keep its contacts.

    A condition of a segment on it then matches nobody. Raises the 404 for an unknown list, the 409 while a broadcast
    waits for it.
    """
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        row = await lists_store.LOCK.first(connection, account, list_id)
        if row is None:
            raise not_found(WHAT)
        if await lists_store.is_awaited(connection, account, list_id):
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"A broadcast that is scheduled or in review uses the list {row.name!r}. Cancel it, then delete the "
                "list.",
                state="in_use",
            )
        await lists_store.DELETE.execute(connection, account, list_id)
        await store.ADD_TO_TOTALS.execute(connection, account, 0, -1, 0)
        await _record(connection, account, AccountEvent.LIST_DELETED, row, actor)


async def add_members(
    pool: asyncpg.Pool, account: UUID, list_id: UUID, contacts: Collection[UUID], *, actor: str
) -> MembersAdded:
    """Add contacts to a list; raise the 404 for an unknown list."""
    wanted = list(dict.fromkeys(contacts))
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        row = await lists_store.read(connection, account, list_id)
        known = await lists_store.known_contacts(connection, account, wanted)
        at = await new_time(connection)
        added = await lists_store.add_members(connection, account, [list_id], known, at)
        if added:
            await _record(connection, account, AccountEvent.LIST_MEMBERS_ADDED, row, actor, added=len(added))
    return MembersAdded(len(added), len(known) - len(added), [one for one in wanted if one not in known])


async def remove_member(pool: asyncpg.Pool, account: UUID, list_id: UUID, contact: UUID, *, actor: str) -> None:
    """Remove a contact from a list if it is a member; raise the 404 for an unknown list or contact."""
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        row = await lists_store.read(connection, account, list_id)
        if not await lists_store.known_contacts(connection, account, [contact]):
            raise not_found("contact")
        if await lists_store.remove_member(connection, account, list_id, contact):
            member = ids.format_id(ids.Kind.CONTACT, contact)
            await _record(connection, account, AccountEvent.LIST_MEMBER_REMOVED, row, actor, contact_id=member)


async def _refuse_name(connection: Conn, account: UUID, name: str, *, other_than: UUID | None = None) -> None:
    known = await lists_store.named(connection, account, search.folded(name))
    if known is not None and known != other_than:
        raise Refusal(
            ErrorType.CONFLICT,
            f"You already have a list named {name!r} (upper and lower case are the same). Choose another name.",
            id=ids.format_id(ids.Kind.LIST, known),
        )


async def _record(
    connection: Conn, account: UUID, kind: AccountEvent, row: ContactListRow, actor: str, **detail: object
) -> None:
    named = {"id": ids.format_id(ids.Kind.LIST, row.id), "name": row.name}
    await record_event(connection, account, kind, named | detail, actor=actor)
