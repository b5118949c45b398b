"""Erase the data of one recipient from an account, in bounded transactions: everything first, the log last.

unsent mail (canceled) → sent messages → received ones → contacts, copies of broadcasts, links, codes, requests → the
suppression becomes a digest → the local sink → log entries (`erase_address_log`) → completed.

Each step finds its remaining work by itself and adds to the receipt's counts in the transaction of its batch, so that
after a crash the next call continues and counts nothing twice. Deliveries in memory find their queue rows deleted and
are not recorded. Every settled outcome locks the account's head, as each batch here does.
"""

import os
import time
from contextlib import suppress
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.audience.contacts import store as contacts
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.codes.verifications.rules import CodeKeys
from engine.ledger import heads
from engine.receiving.inbound_messages import store as received
from engine.retention import erase_address_log
from engine.retention.erase import alone
from engine.retention.erasures import rules, store
from engine.retention.erasures.rules import AddressTerms
from engine.retention.erasures.types import ErasedKind, ErasureRow
from engine.sending import queue_admin
from engine.sending.cancel_schedule import cancel_schedule
from engine.sending.local_sink import service as local_sink
from engine.sending.messages.types import ERASED_ADDRESS
from engine.sending.queue_admin import HOLD_KNOWN_S
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job
from engine.store.queries import Conn, Queries, columns

_SQL = Queries.beside(__file__, "erase_address.sql")
_LOCK = 0x57617966  # one process erases addresses at a time on a database
MAX_OPEN = 100  # erasures looked at in one call, one of each account
MAX_ROWS = 200  # messages per transaction
MAX_SCANNED = 2_000  # rows read by one statement of a scan
BUDGET_S = 600.0  # of one call for one account: a scan that it ends begins again in the next call
WITHDRAWN = "the address of a recipient was erased before the delivery"
_FIRST = UUID(int=0)

_log = structlog.get_logger("erase")

_NEXT_SENT = _SQL.command("next_sent")
_UNSENT = _SQL.command("unsent_among")
_ERASE_SENT = _SQL.command("erase_sent")
_SCAN_MESSAGES = _SQL.command("scan_messages")
_SCAN_RECEIVED = _SQL.command("scan_received")
_UNFORWARD = _SQL.command("unforward")
_ERASE_CONTENT = _SQL.command("erase_content")
_SCAN_COPIES = _SQL.command("scan_copies")
_ERASE_COPIES = _SQL.command("erase_copies_of")
_LINKS = _SQL.command("erase_links_of")
_AGENT_SENDS = _SQL.command("erase_agent_sends_of")
_VERIFICATIONS = _SQL.command("erase_verifications")
_REQUESTS = _SQL.command("erase_requests_of")
_KEYS = _SQL.command("erase_keys_of")
_INVITES = _SQL.command("erase_invites_of")
_MAKE_KEY = _SQL.command("make_key")
_DIGEST = _SQL.command("digest_suppression")
_CLEAR = _SQL.command("clear_suppressions")


class AddressErasure(Struct, frozen=True):
    """An erasure in progress, its search terms, and when its call ends (monotonic clock)."""

    row: ErasureRow
    terms: AddressTerms
    ends: float
    hold_known_s: float = HOLD_KNOWN_S

    @property
    def account(self) -> UUID:
        """Return the account that erases."""
        return self.row.account_id


class BudgetUsed(Exception):  # noqa: N818 - named for what happened
    """The budget of this call ended; the next call continues."""


async def erase_requested(
    pool: asyncpg.Pool, settings: Settings, *, budget_s: float = BUDGET_S, hold_known_s: float = HOLD_KNOWN_S
) -> list[UUID]:
    """Work on the requested erasures, the oldest of each account; return those that are completed.

    Returns nothing while another process erases.
    """
    done: list[UUID] = []
    async with alone(pool, _LOCK) as is_alone:
        for row in await store.OPEN.fetch(pool, MAX_OPEN) if is_alone else ():
            work = AddressErasure(row, rules.terms_of(row.address or ""), time.monotonic() + budget_s, hold_known_s)
            try:
                if await _erase(pool, settings, work):
                    done.append(row.id)
            except BudgetUsed:
                continue
            except DatabaseUnavailable:
                raise
            except Exception:  # noqa: BLE001 - an erasure that fails must not stop those of other accounts
                _log.exception("address not erased", erasure=ids.format_id(ids.Kind.ERASURE, row.id))
    return done


JOB = Job("erasures of addresses", every_s=5, run=erase_requested)


async def _erase(pool: asyncpg.Pool, settings: Settings, work: AddressErasure) -> bool:
    await store.START.execute(pool, work.row.id, clock.now())
    await _suppressions(pool, work)
    await _contacts(pool, work)  # before the messages: a broadcast leaves out a contact that is gone
    await _copies(pool, work)
    if not await _sent(pool, work):
        return False  # a delivery was settled meanwhile; the next call finds the rest
    await _named_messages(pool, work)
    await _received(pool, work)
    await _small_tables(pool, settings, work)
    if settings.delivery == "local":
        await _count(
            pool, work, ErasedKind.SINK, await local_sink.forget(pool, settings, work.account, work.terms.forms)
        )
    return await erase_address_log.erase(pool, work.row.id, work.account, work.terms, late=lambda: _check(work))


# -- what is sent ---------------------------------------------------------------------------------


async def _sent(pool: asyncpg.Pool, work: AddressErasure) -> bool:
    """Erase the messages to the address; return False if some could not be withdrawn yet."""
    after, all_erased = _FIRST, True
    while rows := await _NEXT_SENT.records(pool, work.account, work.terms.forms, after, MAX_ROWS):
        found = [row["message_id"] for row in rows]
        await _withdraw(pool, work, found)
        all_erased &= await _erase_sent(pool, work, found)
        after = found[-1]
        _check(work)
    return all_erased


async def _withdraw(pool: asyncpg.Pool, work: AddressErasure, found: list[UUID]) -> None:
    """Cancel those of the messages that are scheduled, and fail those that are queued."""
    unsent = await _UNSENT.records(pool, found)
    for row in unsent:
        if row["is_scheduled"]:
            with suppress(Refusal):  # released meanwhile: the next call withdraws it from the queue
                await cancel_schedule(pool, work.account, row["id"], actor="service")
    queued = [row["id"] for row in unsent if not row["is_scheduled"]]
    if queued:
        failed = await queue_admin.withdraw(pool, queued, reason=WITHDRAWN, hold_known_s=work.hold_known_s)
        await _count(pool, work, ErasedKind.DELIVERIES, failed)


async def _erase_sent(pool: asyncpg.Pool, work: AddressErasure, found: list[UUID]) -> bool:
    """Erase the address from messages that are not queued; return False if some of them are."""
    async with pool.acquire() as connection, connection.transaction():
        await heads.lock(connection, [work.account])
        unsent = {row["id"] for row in await _UNSENT.records(connection, found)}
        settled = [one for one in found if one not in unsent]
        if settled:
            await _ERASE_SENT.execute(
                connection, work.account, settled, work.terms.forms, settled[0], settled[-1], ERASED_ADDRESS,
                work.terms.expressions,
            )  # fmt: skip
            await _add(connection, work, ErasedKind.MESSAGES, len(settled))
    return not unsent


async def _named_messages(pool: asyncpg.Pool, work: AddressErasure) -> None:
    """Erase the content of messages to others that name the address in the subject, reply address or metadata."""
    after, terms = _FIRST, work.terms
    while rows := await _SCAN_MESSAGES.records(
        pool, work.account, after, MAX_SCANNED, terms.patterns, terms.expressions
    ):
        await _erase_content(pool, work, [row["id"] for row in rows if row["is_named"]])
        after = rows[-1]["id"]
        _check(work)


async def _erase_content(pool: asyncpg.Pool, work: AddressErasure, found: list[UUID]) -> None:
    if not found:
        return
    await _withdraw(pool, work, found)
    async with pool.acquire() as connection, connection.transaction():
        await heads.lock(connection, [work.account])
        await _ERASE_CONTENT.execute(connection, work.account, found, min(found), max(found))
        await _add(connection, work, ErasedKind.MESSAGES, len(found))


# -- everything else ------------------------------------------------------------------------------


async def _received(pool: asyncpg.Pool, work: AddressErasure) -> None:
    """Delete received messages from or to the address, and the content of their forwards."""
    after, terms = _FIRST, work.terms
    while rows := await _SCAN_RECEIVED.records(
        pool, work.account, after, MAX_SCANNED, terms.patterns, terms.expressions
    ):
        found = [row for row in rows if row["is_named"]]
        await _erase_content(pool, work, sorted(row["forwarded_as"] for row in found if row["forwarded_as"]))
        for some in (found[at : at + MAX_ROWS] for at in range(0, len(found), MAX_ROWS)):
            await _delete_received(pool, work, [row["id"] for row in some])
        after = rows[-1]["id"]
        _check(work)


async def _delete_received(pool: asyncpg.Pool, work: AddressErasure, found: list[UUID]) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await heads.lock(connection, [work.account])
        await _UNFORWARD.execute(connection, found)
        gone = await received.delete(connection, work.account, found)
        await _add(connection, work, ErasedKind.RECEIVED, len(gone))


async def _contacts(pool: asyncpg.Pool, work: AddressErasure) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await contacts.lock_totals(connection, work.account)
        for row in await contacts.FIND.fetch(connection, work.account, [work.terms.canonical]):
            await contacts.DELETE.records(connection, work.account, row.id)
            await contacts.ADD_TO_TOTALS.execute(connection, work.account, -1, 0, 0)
            await _add(connection, work, ErasedKind.CONTACTS, 1)


async def _copies(pool: asyncpg.Pool, work: AddressErasure) -> None:
    """Replace the address in the recipients of broadcasts; a running broadcast leaves out contacts that are deleted."""
    broadcast = contact = _FIRST
    while rows := await _SCAN_COPIES.records(pool, work.account, broadcast, MAX_SCANNED, contact, work.terms.forms):
        named = [(row["broadcast_id"], row["contact_id"]) for row in rows if row["is_named"]]
        if named:
            async with pool.acquire() as connection, connection.transaction():
                await _ERASE_COPIES.execute(connection, *columns(named, 2), ERASED_ADDRESS)
                await _add(connection, work, ErasedKind.BROADCAST_COPIES, len(named))
        broadcast, contact = rows[-1]["broadcast_id"], rows[-1]["contact_id"]
        _check(work)


async def _small_tables(pool: asyncpg.Pool, settings: Settings, work: AddressErasure) -> None:
    """Delete links, codes, logged requests, keys and invitations, each kind in one transaction."""
    terms, account = work.terms, work.account
    destinations = [CodeKeys(one).destination(account, terms.canonical) for one in settings.pepper.accepted]
    for kind, query, arguments in (
        (ErasedKind.LINKS, _LINKS, (terms.forms,)),
        (ErasedKind.VERIFICATIONS, _VERIFICATIONS, (destinations,)),
        (ErasedKind.DELIVERIES, _AGENT_SENDS, (terms.canonical,)),
        (ErasedKind.REQUESTS, _REQUESTS, (terms.patterns, terms.expressions)),
        (ErasedKind.REQUESTS, _KEYS, (terms.patterns,)),
        (ErasedKind.INVITES, _INVITES, (terms.canonical,)),
    ):
        async with pool.acquire() as connection, connection.transaction():
            tag = await query.execute(connection, account, *arguments)
            await _add(connection, work, kind, int(tag.rpartition(" ")[2]))


async def _suppressions(pool: asyncpg.Pool, work: AddressErasure) -> None:
    """Replace the suppression of the address by its digest, which still refuses mail to the address."""
    async with pool.acquire() as connection, connection.transaction():
        await heads.lock(connection, [work.account])
        await _MAKE_KEY.execute(connection, work.account, os.urandom(32))
        tag = await _DIGEST.execute(connection, work.account, work.terms.canonical)
        await _CLEAR.execute(connection, work.account, work.terms.expressions)
        await _add(connection, work, ErasedKind.SUPPRESSIONS, int(tag.rpartition(" ")[2]))


# -- receipts -------------------------------------------------------------------------------------


async def _count(pool: asyncpg.Pool, work: AddressErasure, kind: ErasedKind, number: int) -> None:
    if number:
        await store.ADD.execute(pool, work.row.id, kind.value, number)


async def _add(connection: Conn, work: AddressErasure, kind: ErasedKind, number: int) -> None:
    if number:
        await store.ADD.execute(connection, work.row.id, kind.value, number)


def _check(work: AddressErasure) -> None:
    """Raise BudgetUsed once the call's budget ended."""
    if time.monotonic() > work.ends:
        raise BudgetUsed
