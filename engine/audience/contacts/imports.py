"""Import contacts: up to 1,000 rows in one transaction, exact at the plan's limit under parallel imports."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct, UnsetType, structs

from engine.audience.contacts import import_rules, lists_store, rules, search, service, store
from engine.audience.contacts.import_rules import MAX_ROWS, ChangedContact, ImportPlan
from engine.audience.contacts.types import Consent, ImportResult, ImportRow, InvalidRow
from engine.base import ids
from engine.base.events import AccountEvent
from engine.ledger.events import record_event
from engine.store.concurrency_limiter import ConcurrencyLimiter
from engine.store.database_clock import new_time
from engine.store.queries import Conn

WAIT_S: Final = 15.0  # for other imports of the account, below the deadline of a request
IMPORTS: Final = ConcurrencyLimiter("imports", at_once=4, each=2)  # others wait without a database session
_READING: Final = asyncio.Semaphore(1)  # rows of international addresses take half a second of CPU

# What is stored of a contact to be searched: the text, and its trigrams as the text of an array.
Searched = tuple[str, str]


class PreparedImport(Struct, frozen=True):
    """The rows of an import with what is to be searched, by address; and the invalid rows."""

    rows: list[ImportRow]
    searched: dict[str, Searched]
    invalid: list[InvalidRow]


async def import_contacts(
    pool: asyncpg.Pool,
    account: UUID,
    rows: Sequence[Mapping[str, Any]],
    *,
    consent: Consent,
    list_id: UUID | None = None,
    actor: str,
) -> ImportResult:
    """Create and update contacts, and add them to a list; raise the 404 for an unknown list.

    Rows of one address are merged. An invalid row does not affect others. Past the plan's limit no contact is created;
    known ones are still updated.
    """
    async with IMPORTS.of(account, wait_s=WAIT_S):  # before reading too: no account may fill the queue of the reader
        async with _READING:
            prepared = await asyncio.to_thread(prepare, account, rows)
        async with pool.acquire() as connection, connection.transaction():
            return await _store(connection, account, prepared, consent=consent, list_id=list_id, actor=actor)


async def import_many(
    pool: asyncpg.Pool,
    account: UUID,
    rows: Sequence[Mapping[str, Any]],
    *,
    consent: Consent,
    list_id: UUID | None = None,
    actor: str,
) -> ImportResult:
    """Import any number of rows, MAX_ROWS in a transaction; return the sums. Raises as `import_contacts` does."""
    total = ImportResult(created=0, updated=0, unchanged=0, suppressed=0, over_limit=0, invalid=[])
    for start in range(0, len(rows), MAX_ROWS):
        part = rows[start : start + MAX_ROWS]
        result = await import_contacts(pool, account, part, consent=consent, list_id=list_id, actor=actor)
        total = ImportResult(
            created=total.created + result.created,
            updated=total.updated + result.updated,
            unchanged=total.unchanged + result.unchanged,
            suppressed=total.suppressed + result.suppressed,
            over_limit=total.over_limit + result.over_limit,
            invalid=[*total.invalid, *(structs.replace(row, index=start + row.index) for row in result.invalid)],
        )
    return total


def prepare(account: UUID, rows: Sequence[Mapping[str, Any]]) -> PreparedImport:
    """Read the rows and compute what is searched of each contact with the name that its row gives. Pure."""
    valid, refused = import_rules.read_rows(rows)
    return PreparedImport(valid, {row.address: _searched(account, row.address, row.name) for row in valid}, refused)


async def _store(
    connection: Conn, account: UUID, prepared: PreparedImport, *, consent: Consent, list_id: UUID | None, actor: str
) -> ImportResult:
    totals = await store.lock_totals(connection, account)
    lists = [] if list_id is None else [list_id]
    await lists_store.check_known(connection, account, lists)
    limit = service.limit_of(totals)
    room = None if limit is None else max(0, limit - totals.contacts)
    found = await store.FIND.fetch(connection, account, [row.address for row in prepared.rows])
    known = {row.address: row for row in found}
    plan = await asyncio.to_thread(import_rules.plan, prepared.rows, known, room=room, consent=consent)
    at = await new_time(connection)
    created = await _create(connection, account, prepared, plan.created, consent=consent, actor=actor, at=at)
    await _change(connection, account, prepared, plan.changed, actor=actor, at=at)
    same = {row.id for row in plan.unchanged}
    present = [*created, *(one.stored.id for one in plan.changed), *same]
    joined = len(await lists_store.add_members(connection, account, lists, present, at) & same)
    result = await _counted(connection, account, prepared, plan, joined)
    if result.created or result.updated:
        await _record(connection, account, result, consent, list_id, actor)
    return result


async def _create(
    connection: Conn,
    account: UUID,
    prepared: PreparedImport,
    rows: Sequence[ImportRow],
    *,
    consent: Consent,
    actor: str,
    at: datetime,
) -> list[UUID]:
    """Create contacts, each a microsecond after the one before, so that lists show them in the order of their rows."""
    values = []
    for place, row in enumerate(rows):
        created_at = at + timedelta(microseconds=place)
        name = None if isinstance(row.name, UnsetType) else row.name
        fields = rules.fields_text(import_rules.present(row.fields))
        values.append((
            ids.uuid7_at(created_at), row.address, row.email, name, fields, *prepared.searched[row.address], created_at,
        ))  # fmt: skip
    if values:
        await store.insert(connection, account, values, consent=consent.value, by=actor, confirmed=True)
        await store.ADD_TO_TOTALS.execute(connection, account, len(values), 0, 0)
    return [value[0] for value in values]


async def _change(
    connection: Conn,
    account: UUID,
    prepared: PreparedImport,
    changed: Sequence[ChangedContact],
    *,
    actor: str,
    at: datetime,
) -> None:
    if not changed:
        return
    values = [
        (one.stored.id, one.name, rules.fields_text(one.fields), one.consent.value, *_new_search(prepared, one))
        for one in changed
    ]
    await store.change(connection, account, values, at=at, by=actor)


def _new_search(prepared: PreparedImport, one: ChangedContact) -> Searched | tuple[None, None]:
    """Return what is searched of a contact whose name changes, None for one that keeps its name."""
    return (None, None) if one.name == one.stored.name else prepared.searched[one.stored.address]


def _searched(account: UUID, address: str, name: str | UnsetType | None) -> Searched:
    text = search.search_text(address, None if isinstance(name, UnsetType) else name)
    return text, search.array_text(search.trigrams(account, text))


async def _counted(
    connection: Conn, account: UUID, prepared: PreparedImport, plan: ImportPlan, joined: int
) -> ImportResult:
    addresses = [row.address for row in plan.created]
    addresses += [one.stored.address for one in plan.changed] + [row.address for row in plan.unchanged]
    return ImportResult(
        created=len(plan.created),
        updated=len(plan.changed) + joined,
        unchanged=len(plan.unchanged) - joined,
        suppressed=await store.count_suppressed(connection, account, addresses),
        over_limit=plan.over_limit,
        invalid=sorted([*prepared.invalid, *plan.invalid], key=lambda row: row.index),
    )


async def _record(
    connection: Conn, account: UUID, result: ImportResult, consent: Consent, list_id: UUID | None, actor: str
) -> None:
    detail = {
        "created": result.created,
        "updated": result.updated,
        "unchanged": result.unchanged,
        "over_limit": result.over_limit,
        "consent": consent.value,
        "list": None if list_id is None else ids.format_id(ids.Kind.LIST, list_id),
    }
    await record_event(connection, account, AccountEvent.CONTACT_IMPORTED, detail, actor=actor)
