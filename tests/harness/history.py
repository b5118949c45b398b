"""Mail of the past: messages as acceptance and settling would have left them at an earlier time, log included."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.ledger import heads, log
from engine.store import partitions
from tests.harness.accounts import TestAccount

# What the log says of a message that has come to a status; each event a second after the one before.
EVENTS: dict[str, tuple[str, ...]] = {
    "queued": ("accepted",),
    "sending": ("accepted", "attempted", "deferred"),
    "delivered": ("accepted", "attempted", "delivered"),
    "bounced": ("accepted", "attempted", "bounced"),
    "complained": ("accepted", "attempted", "delivered", "complained"),
    "failed": ("accepted", "attempted", "failed"),
    "rejected": ("accepted", "suppressed"),
    "scheduled": ("scheduled",),
    "canceled": ("scheduled", "schedule_canceled"),
}
SCHEDULED = frozenset({"scheduled", "canceled"})


async def write(
    pool: asyncpg.Pool,
    account: TestAccount,
    *made: datetime,
    status: str = "delivered",
    domain: str | None = None,
    events: Sequence[str] | None = None,
    scheduled: bool | None = None,
    told_at: datetime | None = None,
    body: bytes = b"Subject: Hello\r\n\r\nHello!\r\n",
) -> list[UUID]:
    """Write a message with one recipient for each time in `made` (ascending); return their ids.

    Their events are of that time too, or of `told_at`: a log that has been counted grows in the present only.
    """
    messages = [ids.uuid7(clock.milliseconds(at)) for at in made]
    kinds = EVENTS[status] if events is None else events
    waits = status in SCHEDULED if scheduled is None else scheduled
    async with pool.acquire() as connection, connection.transaction():
        for at in {partitions.week_of(at): at for at in made}.values():
            await partitions.ensure(connection, at, ahead=1)
        await connection.execute(
            "INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, "
            "recipient_count, size_bytes, scheduled_at) "
            "SELECT id, $2, $3, 'api', $4, $5, 'Hello', 'transactional', 1, $6, at "
            "FROM unnest($1::uuid[], $7::timestamptz[]) AS n (id, at)",
            messages, account.id, status, account.sender, domain or account.domain, len(body),
            [at + timedelta(hours=1) if waits else None for at in made],
        )  # fmt: skip
        await connection.execute(
            "INSERT INTO message_bodies (message_id, mime, smtputf8) "
            "SELECT id, $2, false FROM unnest($1::uuid[]) AS n (id)",
            messages, body,
        )  # fmt: skip
        await connection.execute(
            "INSERT INTO recipients (message_id, n, account_id, kind, address, status) "
            "SELECT id, 0, $2, 'to', 'ann@people.test', $3 FROM unnest($1::uuid[]) AS n (id)",
            messages, account.id, status,
        )  # fmt: skip
        await tell(
            connection,
            account,
            [
                (message, kind, (told_at or at) + timedelta(seconds=step))
                for message, at in zip(messages, made, strict=True)
                for step, kind in enumerate(kinds)
            ],
        )
    return messages


async def tell(
    connection: asyncpg.pool.PoolConnectionProxy,
    account: TestAccount,
    told: Sequence[tuple[UUID | None, str, datetime]],
) -> None:
    """Events in the account's log, in this order, each made at its own time."""
    locked = await heads.lock(connection, [account.id])
    entries = [
        log.Entry(
            account.id, kind, "{}", at, message,
            None if message is None else ids.format_id(ids.Kind.MESSAGE, message),
        )
        for message, kind, at in told
    ]  # fmt: skip
    rows = log.seal(locked[account.id], entries, [ids.uuid7(clock.milliseconds(at)) for _, _, at in told])
    await log.append(connection, rows)
    await heads.save(connection, locked.values())


async def chain_holds(pool: asyncpg.Pool, account: TestAccount) -> bool:
    """Return True if the rest of the account log links the head's purged hash to its last hash without a gap."""
    head = await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert head is not None
    rows = await pool.fetch("SELECT * FROM events WHERE account_id = $1 ORDER BY seq", account.id)
    seqs = [head["purged_through_seq"], *(row["seq"] for row in rows)]
    last = head["purged_hash"]
    for row in rows:
        last = log.chained(last, row["seq"], row["occurred_at"], row["payload"])
        if last != row["hash"]:
            return False
    return all(after == before + 1 for before, after in pairwise(seqs)) and (seqs[-1], last) == (
        head["seq"],
        head["hash"],
    )
