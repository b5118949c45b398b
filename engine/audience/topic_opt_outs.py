"""Record and take back opt-outs of topics at a customer's request, in one transaction with their events.

Locks the account head first, as the use of links does (`unsubscribe.py`), so that opt-outs are in the order of commits.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.audience.contacts import lists_store
from engine.audience.contacts.files import FileFormat
from engine.base import clock, ids
from engine.base.errors import Refusal, not_found
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.sending.suppressions import files, rules
from engine.sending.suppressions.files import SuppressionFileFormat
from engine.sending.unsubscribes import store
from engine.sending.unsubscribes.types import LinkChoice
from engine.store.database_clock import new_time

MAX_ROWS: Final = 1_000  # in one transaction
_SOURCE: Final = "api"  # in events, beside those of links


class RefusedAddress(Struct, frozen=True):
    """An address that was refused: its index, and the error that a single request would get."""

    index: int
    error: dict[str, Any]


class OptOutResult(Struct, frozen=True):
    """Count the addresses that opted out now and those that had before, each once; name the refused ones."""

    added: int
    already: int
    refused: list[RefusedAddress]


def read_file(form: FileFormat, content: str) -> list[str]:
    """Return the addresses of a file, "" for a row without one; raise the 400 for a file that can't be read."""
    rows = files.read_file(SuppressionFileFormat(form.value), content)
    return [str(row.get("address") or row.get("email") or "") for row in rows]


async def opt_out(pool: asyncpg.Pool, account: UUID, topic: UUID, given: Sequence[str], *, actor: str) -> OptOutResult:
    """Record that the people with these addresses opted out of the list `topic`, 1,000 in a transaction.

    Writes one `contact.unsubscribed` for each that had not opted out before. Raises the 404 for an unknown list.
    """
    await lists_store.read(pool, account, topic)
    wanted, refused = await asyncio.to_thread(_checked, given)
    added = 0
    for start in range(0, len(wanted), MAX_ROWS):
        added += await _add(pool, account, topic, wanted[start : start + MAX_ROWS], actor)
    return OptOutResult(added, len(wanted) - added, refused)


async def _add(pool: asyncpg.Pool, account: UUID, topic: UUID, addresses: Sequence[str], actor: str) -> int:
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        await lists_store.read(connection, account, topic)
        at = await new_time(connection)
        new = await store.add_topic_opt_outs(connection, account, topic, addresses, at)
        kind = AccountEvent.CONTACT_UNSUBSCRIBED
        await append_locked(connection, locked, [_entry(account, kind, topic, one, actor) for one in sorted(new)])
    return len(new)


async def take_back(pool: asyncpg.Pool, account: UUID, topic: UUID, address: str, *, actor: str) -> None:
    """Take back the opt-out of a canonical address from the list `topic`, with a `contact.resubscribed`.

    Raises the 404 for an unknown list, and for an address that has not opted out of it.
    """
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        await lists_store.read(connection, account, topic)
        if not await store.delete_topic_opt_out(connection, account, topic, address):
            raise not_found("opt-out")
        kind = AccountEvent.CONTACT_RESUBSCRIBED
        await append_locked(connection, locked, [_entry(account, kind, topic, address, actor)])


def _entry(account: UUID, kind: AccountEvent, topic: UUID, address: str, actor: str) -> log.Entry:
    detail = {
        "address": address,
        "scope": LinkChoice.TOPIC.value,
        "list_id": ids.format_id(ids.Kind.LIST, topic),
        "source": _SOURCE,
        "broadcast_id": None,
        "actor": actor,
    }
    return log.Entry(account, kind, log.detail_text(detail), clock.now())


def _checked(given: Sequence[str]) -> tuple[list[str], list[RefusedAddress]]:
    """Return the canonical addresses, each once, and the refused ones. Takes 0.2 s for a thousand unusual addresses."""
    wanted: dict[str, None] = {}
    refused = []
    for index, text in enumerate(given):
        try:
            wanted[rules.address_of(text)] = None
        except Refusal as refusal:
            refused.append(RefusedAddress(index, refusal.envelope()["error"]))
    return list(wanted), refused
