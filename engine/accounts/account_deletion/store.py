"""Read and write scheduled deletions and records of erased accounts."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries

GRACE = timedelta(days=14)  # from the request to the erasure, during which it can be canceled

_SQL = Queries.beside(__file__)


class DeletionRow(Struct, frozen=True):
    """A scheduled deletion; from `began_at` on, the erasure can't be canceled."""

    account_id: UUID
    requested_at: datetime
    due_at: datetime
    began_at: datetime | None


class Tombstone(Struct, frozen=True):
    """The rest of an erased account: the end of its log (`seq` is also the number of its events)."""

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
