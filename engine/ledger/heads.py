"""Account heads: the end of each account's log and its counters. Every transaction that adds to either locks them.

Locks are taken in the order of account ids, so that two transactions that share accounts cannot deadlock.
"""

from collections.abc import Collection, Iterable
from datetime import date
from uuid import UUID

from msgspec import Struct

from engine.base.plans import Caps, caps_of
from engine.store.queries import Conn, Queries, Source
from engine.store.row_sets import Column, RowSet

_SQL = Queries.beside(__file__, "heads.sql")


class AccountHead(Struct):
    """An account head with the fields of its account that decisions need."""

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
    scheduled: int = 0  # messages that are scheduled
    parent_id: UUID | None = None  # of a sub-account, whose mail also counts against the parent's month
    account_version: int = 0  # of the account's row (xmin)
    agreed_caps: str | None = None  # limits above the plan's (JSON)

    @property
    def caps(self) -> Caps:
        """Return the limits of the plan and of the agreement; `quota.monthly_cap` decides on the monthly emails."""
        return caps_of(self.plan, self.agreed_caps)


# The columns that counting and sealing change.
HEAD = RowSet(
    "head",
    AccountHead,
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
# The columns that sealing alone changes.
TIP = RowSet("tip", AccountHead, Column("account_id"), Column("seq", "bigint"), Column("hash"))

LOCK = _SQL.rows("lock_heads", AccountHead)
LOCK_COUNTED = _SQL.rows("lock_counted", AccountHead)
READ = _SQL.rows("read_head", AccountHead)
READ_MANY = _SQL.rows("read_heads", AccountHead)
SAVE = _SQL.wide("save_heads", HEAD)

_WITHOUT_PARENT: set[UUID] = set()  # accounts known to have no parent; accounts never get one later
_MAX_WITHOUT_PARENT = 100_000


async def lock(connection: Conn, accounts: Collection[UUID]) -> dict[UUID, AccountHead]:
    """Lock the heads of these accounts until the transaction ends, and return them."""
    return {head.account_id: head for head in await LOCK.fetch(connection, sorted(accounts))}


async def lock_counted(connection: Conn, accounts: Collection[UUID]) -> dict[UUID, AccountHead]:
    """Lock the heads of these accounts and of their parents, as required to count messages.

    Do not lock a sub-account's head first and its parent's later: a parent is mostly older, so its head is locked
    first, and the reverse order risks a deadlock. Looking up parents costs 30 to 200 µs, so accounts known to have none
    skip it.
    """
    if _WITHOUT_PARENT.issuperset(accounts):
        return await lock(connection, accounts)
    locked = {head.account_id: head for head in await LOCK_COUNTED.fetch(connection, sorted(accounts))}
    if len(_WITHOUT_PARENT) >= _MAX_WITHOUT_PARENT:
        _WITHOUT_PARENT.clear()
    _WITHOUT_PARENT.update(account for account, head in locked.items() if head.parent_id is None)
    return locked


async def read(connection: Source, account: UUID) -> AccountHead | None:
    """Return the head as last committed, without a lock."""
    return await READ.first(connection, account)


async def read_many(source: Source, accounts: Collection[UUID]) -> dict[UUID, AccountHead]:
    """Return the heads of these accounts and of their parents as last committed, without a lock."""
    return {head.account_id: head for head in await READ_MANY.fetch(source, list(accounts))}


async def save(connection: Conn, heads: Iterable[AccountHead]) -> None:
    """Store locked heads."""
    await SAVE.run(connection, HEAD.of(heads))
