"""Erase the payloads of log entries about an address, and name these entries in `erasure.completed` events.

The event and the erased payloads are one transaction: at any time, the log names each entry without payload. An erasure
of up to MAX_ENTRIES entries writes one event; a larger one writes more, of which the last has `"last":true`.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.receiving.analytics import delivery
from engine.retention.erasures import rules, store
from engine.retention.erasures.rules import AddressTerms
from engine.retention.erasures.types import ErasedKind
from engine.sending.messages.types import ERASED_ADDRESS
from engine.store.queries import Conn, Queries

MAX_SCANNED: Final = 2_000  # entries read by one statement
MAX_ENTRIES: Final = 5_000  # entries erased in one transaction and named by one event

_SQL = Queries.beside(__file__, "erase_address_log.sql")
_ENDS = _SQL.command("log_ends")
_SCAN = _SQL.command("scan_log")
_ERASE = _SQL.command("erase_entries")

Found = list[tuple[int, UUID]]  # seq and id of entries


async def erase(
    pool: asyncpg.Pool, erasure: UUID, account: UUID, terms: AddressTerms, *, late: Callable[[], None]
) -> bool:
    """Erase the entries up to the present end of the log and complete the erasure; `late` raises to end the call.

    Returns False if the counts of deliveries, which are made from the log, have not reached its end. The next call
    tries again.
    """
    row = await store.READ.first(pool, account, erasure)
    ends = await _ENDS.records(pool, account)
    if row is None or not ends:
        return False
    tip = ends[0]["tip"]
    await delivery.count_rest(pool, account)
    if (await _ENDS.records(pool, account))[0]["counted"] < tip:
        return False
    at, found = max(row.log_seq, ends[0]["purged"]), Found()
    while at < tip:
        upto = min(tip, at + MAX_SCANNED)
        found += [
            (one["seq"], one["id"])
            for one in await _SCAN.records(pool, account, at, upto, terms.patterns, terms.expressions, ERASED_ADDRESS)
        ]
        at = upto
        if len(found) + MAX_SCANNED > MAX_ENTRIES:
            await _write(pool, erasure, account, found, at, last=False)
            found = Found()
        late()
    await _write(pool, erasure, account, found, at, last=True)
    return True


async def _write(pool: asyncpg.Pool, erasure: UUID, account: UUID, found: Found, upto: int, *, last: bool) -> None:
    """Erase the payloads of entries, append the event that names them, and note the progress, in one transaction."""
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        seqs = [seq for seq, _ in found]
        attempts = (await _ERASE.records(connection, account, seqs, [one for _, one in found]))[0]["attempts"]
        await _add(connection, erasure, ErasedKind.WEBHOOKS, attempts)
        await _add(connection, erasure, ErasedKind.LOG, len(found))
        detail = {
            "id": ids.format_id(ids.Kind.ERASURE, erasure),
            "entries": rules.ranges(seqs),
            "last": last,
            "actor": "service",
        }
        entry = log.Entry(account, AccountEvent.ERASURE_COMPLETED, log.detail_text(detail), clock.now())
        written = await append_locked(connection, locked, [entry])
        await store.NAME.execute(connection, erasure, upto, written[0].seq)
        if last:
            await store.COMPLETE.execute(connection, erasure, clock.now())


async def _add(connection: Conn, erasure: UUID, kind: ErasedKind, number: int) -> None:
    if number:
        await store.ADD.execute(connection, erasure, kind.value, number)
