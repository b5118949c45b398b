"""Create, change and delete contacts, each in one transaction with its event.

Events name a contact by its id and fields by their names: the log can't be changed when a person is erased.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

import asyncpg
from msgspec import UNSET, UnsetType

from engine.audience.contacts import lists_store, rules, search, store
from engine.audience.contacts.types import Consent, ContactRow, ContactTotals, FieldValue, NewContact
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.plans import CAPS, Plan
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached
from engine.store.database_clock import new_time
from engine.store.queries import Conn

WHAT = "contact"


async def create(
    pool: asyncpg.Pool,
    account: UUID,
    wanted: NewContact,
    *,
    consent: Consent,
    lists: Collection[UUID] = (),
    actor: str,
) -> ContactRow:
    """Create a contact and add it to lists.

    Raises the 409 with the id of the contact that has the address, the 404 for an unknown list, the 403 above the
    plan's limit.
    """
    async with pool.acquire() as connection, connection.transaction():
        return await create_in(connection, account, wanted, consent=consent, lists=lists, actor=actor)


async def create_in(
    connection: Conn,
    account: UUID,
    wanted: NewContact,
    *,
    consent: Consent,
    lists: Collection[UUID] = (),
    confirmed: bool = True,
    actor: str,
) -> ContactRow:
    """Create a contact within the caller's transaction, as `create` does."""
    totals = await store.lock_totals(connection, account)
    await _refuse_known(connection, account, wanted)
    await lists_store.check_known(connection, account, lists)
    _check_room(totals)
    at = await new_time(connection)
    contact = ids.uuid7_at(at)
    text = search.search_text(wanted.address, wanted.name)
    row = (
        contact, wanted.address, wanted.email, wanted.name, rules.fields_text(wanted.fields), text,
        search.array_text(search.trigrams(account, text)), at,
    )  # fmt: skip
    await store.insert(connection, account, [row], consent=consent.value, by=actor, confirmed=confirmed)
    await lists_store.add_members(connection, account, lists, [contact], at)
    await store.ADD_TO_TOTALS.execute(connection, account, 1, 0, 0)
    detail = {"consent": consent.value, "lists": [ids.format_id(ids.Kind.LIST, one) for one in lists]}
    await _record(connection, account, AccountEvent.CONTACT_CREATED, contact, actor, **detail)
    return await read(connection, account, contact)


async def read(source: Conn | asyncpg.Pool, account: UUID, contact: UUID) -> ContactRow:
    """Return a contact; raise the 404 for an unknown one."""
    row = await store.READ.first(source, account, contact)
    if row is None:
        raise not_found(WHAT)
    return row


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    contact: UUID,
    *,
    name: str | UnsetType | None = UNSET,
    fields: Mapping[str, FieldValue | None] | UnsetType = UNSET,
    actor: str,
) -> ContactRow:
    """Change the name if it is given, merge fields, and return the contact; raise the 404 for an unknown one."""
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        row = await read(connection, account, contact)
        before = rules.fields_of(row.fields)
        after = before if isinstance(fields, UnsetType) else rules.merged(before, fields)
        named = row.name if isinstance(name, UnsetType) else name
        changed = [*(["name"] if named != row.name else []), *_changed_fields(before, after)]
        if not changed:
            return row
        text = search.search_text(row.address, named)
        trigrams = search.array_text(search.trigrams(account, text))
        values = (contact, named, rules.fields_text(after), row.consent, text, trigrams)
        await store.change(connection, account, [values], at=await new_time(connection), by=actor)
        await _record(connection, account, AccountEvent.CONTACT_UPDATED, contact, actor, changed=changed)
        return await read(connection, account, contact)


async def delete(pool: asyncpg.Pool, account: UUID, contact: UUID, *, actor: str) -> None:
    """Delete a contact and its memberships; a suppression of its address stays. Raises the 404 for an unknown one."""
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_totals(connection, account)
        if not await store.DELETE.records(connection, account, contact):
            raise not_found(WHAT)
        await store.ADD_TO_TOTALS.execute(connection, account, -1, 0, 0)
        await _record(connection, account, AccountEvent.CONTACT_DELETED, contact, actor)


def limit_of(totals: ContactTotals) -> int | None:
    """Return the number of contacts that the account's plan allows, None for any number."""
    return CAPS[Plan(totals.plan)].contacts


def _check_room(totals: ContactTotals) -> None:
    limit = limit_of(totals)
    if limit is not None and totals.contacts >= limit:
        raise limit_reached("contacts", "contacts", limit, totals.contacts)


async def _refuse_known(connection: Conn, account: UUID, wanted: NewContact) -> None:
    for row in await store.FIND.fetch(connection, account, [wanted.address]):
        raise Refusal(
            ErrorType.CONFLICT,
            f"You already have a contact with the address {row.address}. Change it by its id.",
            id=ids.format_id(ids.Kind.CONTACT, row.id),
        )


def _changed_fields(before: Mapping[str, FieldValue], after: Mapping[str, FieldValue]) -> list[str]:
    names = sorted({*before, *after})
    return [
        f"fields.{name}"
        for name in names
        if (name in before) != (name in after) or not rules.same_value(before[name], after[name])
    ]


async def _record(
    connection: Conn, account: UUID, kind: AccountEvent, contact: UUID, actor: str, **detail: object
) -> None:
    named = {"id": ids.format_id(ids.Kind.CONTACT, contact)}
    await record_event(connection, account, kind, named | detail, actor=actor)
