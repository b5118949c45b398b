"""The head of an account: the tip of its log and its counts, locked by whoever adds to them.

Locks are taken in id order, so that two flushes that share accounts can't block each other.
"""

from collections.abc import Collection, Iterable
from datetime import date
from uuid import UUID

from msgspec import Struct

from engine.store import queries
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "heads.sql")


class Head(Struct):
    """One locked account head with what the decisions on it need to know of the account."""

    account_id: UUID
    seq: int
    hash: bytes
    rung: int
    day: date
    sent_today: int
    month: date
    sent_this_month: int
    plan: str
    status: str
    daily_cap: int | None
    monthly_cap: int | None
    scheduled: int = 0  # messages that wait for their release


LOCK = _SQL.rows("lock_heads", Head)
READ = _SQL.rows("read_head", Head)
SAVE = _SQL.command("save_heads")


async def lock(connection: Conn, accounts: Collection[UUID]) -> dict[UUID, Head]:
    """Lock the heads of these accounts until the transaction ends."""
    return {head.account_id: head for head in await LOCK.fetch(connection, sorted(accounts))}


async def read(connection: Conn, account: UUID) -> Head | None:
    """The head as last committed, without a lock."""
    return await READ.first(connection, account)


async def save(connection: Conn, heads: Iterable[Head]) -> None:
    """Write locked heads back."""
    await SAVE.execute(connection, *columns(heads))


def columns(heads: Iterable[Head]) -> tuple[list[object], ...]:
    """The saved fields as column arrays, in the order of `save_heads`."""
    rows = [
        (
            head.account_id, head.seq, head.hash, head.rung, head.day, head.sent_today,
            head.month, head.sent_this_month, head.scheduled,
        )
        for head in heads
    ]  # fmt: skip
    return queries.columns(rows, 9)
