"""Rows of deletions and of erased accounts."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries

GRACE = timedelta(days=14)  # from the request to the erasure: time to think better of it

_SQL = Queries.beside(__file__)


class DeletionRow(Struct, frozen=True):
    """A deletion that was asked for. `began_at`: of the erasure, which can't be stopped any more."""

    account_id: UUID
    requested_at: datetime
    due_at: datetime
    began_at: datetime | None


class Tombstone(Struct, frozen=True):
    """What is left of an erased account: where its log ended (`seq` is also the number of its events)."""

    account_id: UUID
    opened_at: datetime
    requested_at: datetime
    erased_at: datetime
    seq: int
    hash: bytes


READ = _SQL.rows("read_deletion", DeletionRow)
DUE = _SQL.rows("due_deletions", DeletionRow)
TOMBSTONE = _SQL.rows("read_tombstone", Tombstone)
SCHEDULE = _SQL.command("schedule_deletion")
CANCEL = _SQL.command("cancel_deletion")
BEGIN = _SQL.command("begin_deletions")
BURY = _SQL.command("keep_tombstone")
