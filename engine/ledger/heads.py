"""The head of an account: the tip of its log and its counts, locked by whoever adds to them.

Locks are taken in id order, so that two flushes that share accounts can't block each other.
"""

from collections.abc import Collection, Iterable
from datetime import date
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Conn, Queries
from engine.store.row_sets import Column, RowSet

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
    parent_id: UUID | None = None  # of a sub-account: whose monthly allowance its mail counts against too
    version: int = 0  # of the head's row: every change leaves another
    account_version: int = 0  # of the account's row


# What counting and sealing change on a head.
HEAD = RowSet(
    "head",
    Head,
    Column("account_id"),
    Column("seq", "bigint"),
    Column("hash"),
    Column("rung", "smallint"),
    Column("day"),
    Column("sent_today", "integer"),
    Column("month"),
    Column("sent_this_month", "integer"),
    Column("scheduled", "integer"),
)
# What sealing alone changes.
TIP = RowSet("tip", Head, Column("account_id"), Column("seq", "bigint"), Column("hash"))

LOCK = _SQL.rows("lock_heads", Head)
LOCK_COUNTED = _SQL.rows("lock_counted", Head)
READ = _SQL.rows("read_head", Head)
SAVE = _SQL.wide("save_heads", HEAD)

_ALONE: set[UUID] = set()  # accounts without a parent, as this process has learned; that never changes
_MAX_ALONE = 100_000


async def lock(connection: Conn, accounts: Collection[UUID]) -> dict[UUID, Head]:
    """Lock the heads of these accounts until the transaction ends."""
    return {head.account_id: head for head in await LOCK.fetch(connection, sorted(accounts))}


async def lock_counted(connection: Conn, accounts: Collection[UUID]) -> dict[UUID, Head]:
    """The same with the heads of their parents: what counts messages of sub-accounts needs both.

    A parent is mostly older than its sub-accounts, so its head comes first: whoever has locked a sub-account's head and
    then wants the parent's risks a deadlock. Looking parents up costs 30 to 200 µs: accounts known to have none are
    spared it.
    """
    if _ALONE.issuperset(accounts):
        return await lock(connection, accounts)
    locked = {head.account_id: head for head in await LOCK_COUNTED.fetch(connection, sorted(accounts))}
    if len(_ALONE) >= _MAX_ALONE:
        _ALONE.clear()
    _ALONE.update(account for account, head in locked.items() if head.parent_id is None)
    return locked


async def read(connection: Conn, account: UUID) -> Head | None:
    """The head as last committed, without a lock."""
    return await READ.first(connection, account)


async def save(connection: Conn, heads: Iterable[Head]) -> None:
    """Write locked heads back."""
    await SAVE.run(connection, HEAD.of(heads))
