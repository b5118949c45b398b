"""Check codes, approve by link and cancel: the moves of a verification that send no mail.

A check takes an attempt by one conditional UPDATE before it compares anything; that UPDATE locks the row until the
result is committed, so parallel checks of a verification come one after the other. Locks are taken in the order
verification, destination.
"""

from uuid import UUID

import asyncpg

from engine.base.errors import existing
from engine.codes.verifications import rules, store
from engine.codes.verifications.rules import CodeKeys
from engine.codes.verifications.types import ClaimedAttempt, LinkedRow, VerificationRow, VerificationStatus
from engine.store import metrics
from engine.store.queries import Conn, Source


async def read(source: Source, account: UUID, verification: UUID) -> VerificationRow:
    """Return a verification; raise the 404 for an unknown or purged one."""
    return existing(await store.READ.first(source, account, verification), rules.WHAT)


async def check(
    pool: asyncpg.Pool, keys: CodeKeys, account: UUID, verification: UUID, code: str
) -> tuple[VerificationStatus, int]:
    """Compare a typed code; return the new status and the attempts left.

    Raises the 404 for an unknown verification, the 409 for a finished one.
    """
    async with pool.acquire() as connection, connection.transaction():
        claimed = await store.CLAIM_ATTEMPT.first(connection, account, verification)
        if claimed is not None:
            status = _result(claimed, right=keys.is_code(verification, rules.folded(code), claimed.code))
            if status is not VerificationStatus.PENDING:
                await _finish(connection, account, verification, status)
    if claimed is None:
        raise rules.terminal((await read(pool, account, verification)).status)
    metrics.TALLY.add(metrics.CODES_CHECKED, "wrong" if status is VerificationStatus.PENDING else status.value)
    return status, claimed.attempts_left


async def cancel(pool: asyncpg.Pool, account: UUID, verification: UUID) -> VerificationRow:
    """Cancel a pending verification and return it; repeating is allowed.

    Raises the 404 for an unknown verification, the 409 for one that is approved, expired or exhausted.
    """
    await store.FINISH.records(pool, account, verification, VerificationStatus.CANCELLED.value)
    row = await read(pool, account, verification)
    if row.status != VerificationStatus.CANCELLED:
        raise rules.terminal(row.status)
    return row


async def linked(source: Source, keys: CodeKeys, token: str) -> tuple[UUID, LinkedRow] | None:
    """Return the verification of a confirmation link; None for a link that is not of its latest mail."""
    verification = rules.id_of_link(token)
    row = None if verification is None else await store.READ_LINKED.first(source, verification)
    if verification is None or row is None or not row.has_link:
        return None
    return (verification, row) if keys.fits_link(token.lower(), verification, row.codes_sent) else None


async def approve_by_link(pool: asyncpg.Pool, keys: CodeKeys, token: str) -> LinkedRow | None:
    """Approve the verification of a link and return it as it is then; None for an unusable link."""
    known = await linked(pool, keys, token)
    if known is None:
        return None
    verification, row = known
    async with pool.acquire() as connection, connection.transaction():
        approved = await store.APPROVE_BY_LINK.records(connection, verification, row.codes_sent)
        for one in approved:
            await store.NOTE_APPROVED.execute(connection, one["account_id"], one["destination"])
    if approved:
        metrics.TALLY.add(metrics.CODES_CHECKED, "approved_by_link")
    return await store.READ_LINKED.first(pool, verification)


def _result(claimed: ClaimedAttempt, *, right: bool) -> VerificationStatus:
    if right:
        return VerificationStatus.APPROVED
    return VerificationStatus.PENDING if claimed.attempts_left else VerificationStatus.EXHAUSTED


async def _finish(connection: Conn, account: UUID, verification: UUID, status: VerificationStatus) -> None:
    """Finish a verification whose row this transaction has locked, and note the result on its destination.

    Raises the 409, and takes the attempt back, if the deadline passed since the attempt was taken.
    """
    rows = await store.FINISH.records(connection, account, verification, status.value)
    if not rows:
        raise rules.terminal(VerificationStatus.EXPIRED.value)
    destination = rows[0]["destination"]
    if status is VerificationStatus.APPROVED:
        await store.NOTE_APPROVED.execute(connection, account, destination)
    else:
        await store.NOTE_EXHAUSTED.execute(connection, account, destination, rules.MAX_EXHAUSTED)
