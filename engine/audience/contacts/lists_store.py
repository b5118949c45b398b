"""Read and write contact lists and their members, whose number each list keeps."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from engine.audience.contacts.types import ContactListRow
from engine.base.errors import not_found
from engine.store.queries import Conn, Queries, Source

WHAT = "list"

_SQL = Queries.beside(__file__, "lists.sql")
LIST = _SQL.rows("list_lists", ContactListRow)
READ = _SQL.rows("read_list", ContactListRow)
LOCK = _SQL.rows("lock_list", ContactListRow)
INSERT = _SQL.rows("insert_list", ContactListRow)
CHANGE = _SQL.rows("change_list", ContactListRow)
DELETE = _SQL.command("delete_list")
_NAMED = _SQL.command("named_list")
_KNOWN = _SQL.command("known_lists")
_AWAITED = _SQL.command("list_awaited")
_ADD = _SQL.command("add_members")
_REMOVE = _SQL.command("remove_member")
_KNOWN_CONTACTS = _SQL.command("known_contacts")


async def read(source: Source, account: UUID, list_id: UUID) -> ContactListRow:
    """Return a list; raise the 404 for an unknown one."""
    row = await READ.first(source, account, list_id)
    if row is None:
        raise not_found(WHAT)
    return row


async def check_known(source: Source, account: UUID, lists: Collection[UUID]) -> None:
    """Raise the 404 unless the account has all the lists."""
    if set(lists) - await known(source, account, lists):
        raise not_found(WHAT)


async def known(source: Source, account: UUID, lists: Collection[UUID]) -> set[UUID]:
    """Return those of the lists that the account has."""
    if not lists:
        return set()
    return {row["id"] for row in await _KNOWN.records(source, account, list(lists))}


async def named(source: Source, account: UUID, key: str) -> UUID | None:
    """Return the list with a name, given without differences of case."""
    found = await _NAMED.records(source, account, key)
    return found[0]["id"] if found else None


async def is_awaited(connection: Conn, account: UUID, list_id: UUID) -> bool:
    """Return True if a broadcast that waits to start names the list."""
    return bool((await _AWAITED.records(connection, account, list_id))[0]["awaited"])


async def add_members(
    connection: Conn, account: UUID, lists: Collection[UUID], contacts: Collection[UUID], at: datetime
) -> set[UUID]:
    """Add contacts, which exist, to lists; return those that were not yet in one of them."""
    if not lists or not contacts:
        return set()
    added = await _ADD.records(connection, account, sorted(set(lists)), sorted(set(contacts)), at)
    return {row["contact_id"] for row in added}


async def remove_member(connection: Conn, account: UUID, list_id: UUID, contact: UUID) -> bool:
    """Remove a contact from a list; return False if it was no member."""
    return bool(await _REMOVE.records(connection, account, list_id, contact))


async def known_contacts(connection: Conn, account: UUID, contacts: Collection[UUID]) -> set[UUID]:
    """Return those of the contacts that the account has."""
    return {row["id"] for row in await _KNOWN_CONTACTS.records(connection, account, list(contacts))}
