"""Read and write broadcasts, and the claims of the workers."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct, structs

from engine.audience.broadcasts.types import (
    Broadcast,
    BroadcastCounts,
    BroadcastDraft,
    BroadcastStatus,
    BroadcastSummary,
    PauseReason,
    StopReason,
    UnfinishedBroadcasts,
    WaitReason,
)
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_broadcasts", BroadcastSummary)
READ = _SQL.rows("read_broadcast", Broadcast)
LOCK = _SQL.rows("lock_broadcast", Broadcast)
FIND = _SQL.rows("find_broadcast", BroadcastSummary)
REVIEWS = _SQL.rows("list_reviews", BroadcastSummary)
_COUNTS = _SQL.rows("read_counts", BroadcastCounts)
_INSERT = _SQL.wide("insert_broadcast")
_CHANGE = _SQL.wide("change_broadcast")
_SEND = _SQL.command("send_broadcast")
_MOVE = _SQL.command("move_broadcast")
_DELETE = _SQL.command("delete_broadcast")
_KEEP = _SQL.command("keep_work")
_END_TURN = _SQL.command("end_turn")
DROP_WORK = _SQL.command("drop_work")
_APPROVED = _SQL.command("approved_before")
_LOCK_REVIEW = _SQL.command("lock_review")
APPROVE = _SQL.command("approve")
START_COUNTS = _SQL.command("start_counts")
_ANY_WAITING = _SQL.command("any_waiting")
_FORGET = _SQL.command("forget_recipients")
_REMOVE_FILES = _SQL.command("remove_files")
_UNFINISHED = _SQL.rows("read_unfinished", UnfinishedBroadcasts)


class ClaimedWork(Struct, frozen=True):
    """A broadcast that a worker has claimed, and the database's time."""

    broadcast_id: UUID
    account_id: UUID
    at: datetime


CLAIM_WORK = _SQL.rows("claim_work", ClaimedWork)


async def counts(source: Source, broadcast: UUID) -> BroadcastCounts:
    """Return the counts of a broadcast."""
    found = await _COUNTS.first(source, broadcast)
    assert found is not None
    return found


async def unfinished(source: Source, account: UUID) -> UnfinishedBroadcasts:
    """Return the number and size of the account's broadcasts that have not ended."""
    found = await _UNFINISHED.first(source, account)
    assert found is not None
    return found


async def insert(connection: Conn, account: UUID, broadcast: UUID, draft: BroadcastDraft, at: datetime) -> None:
    """Insert a draft."""
    await _INSERT.run(connection, broadcast=broadcast, account=account, at=at, **_fields(draft))


async def change(connection: Conn, account: UUID, broadcast: UUID, draft: BroadcastDraft) -> None:
    """Replace the fields of a draft."""
    await _CHANGE.run(connection, broadcast=broadcast, account=account, **_fields(draft))


async def send(
    connection: Conn, broadcast: UUID, status: BroadcastStatus, version: int | None, scheduled_at: datetime | None
) -> None:
    """Give a broadcast its first status after `draft`, and tell the workers."""
    await _SEND.execute(connection, broadcast, status.value, version, scheduled_at)


async def move(
    connection: Conn,
    broadcast: UUID,
    status: BroadcastStatus,
    *,
    paused: PauseReason | None = None,
    stopped: StopReason | None = None,
    note: str | None = None,
    resumes_at: datetime | None = None,
    look_at: datetime | None = None,
) -> None:
    """Give a broadcast another status; a worker looks at it at `look_at`, or never if that is None."""
    await _MOVE.execute(connection, broadcast, status.value, paused, stopped, note, resumes_at, look_at)


async def delete(connection: Conn, broadcast: UUID) -> None:
    """Delete a broadcast with its recipients and counts."""
    await _DELETE.execute(connection, broadcast)


async def keep_work(source: Source, broadcast: UUID, worker: str, lease: timedelta) -> bool:
    """Keep the claim on a broadcast; return False if another worker has claimed it."""
    return bool(await _KEEP.records(source, broadcast, worker, lease))


async def end_turn(source: Source, broadcast: UUID, worker: str, wait: timedelta, waits_for: WaitReason | None) -> None:
    """End the claim on a broadcast, which is due again after `wait`."""
    await _END_TURN.execute(source, broadcast, worker, wait, waits_for)


async def approved_before(source: Source, account: UUID) -> bool:
    """Return True if the operator has approved a broadcast of the account."""
    rows = await _APPROVED.records(source, account)
    return bool(rows and rows[0]["approved"])


async def lock_review(connection: Conn, account: UUID) -> bool:
    """Lock the account's review record until the transaction ends; return True if a broadcast was approved before."""
    return bool((await _LOCK_REVIEW.records(connection, account))[0]["approved"])


async def any_waiting(source: Source, broadcast: UUID) -> bool:
    """Return True if a recipient is neither accepted nor skipped."""
    return bool(await _ANY_WAITING.records(source, broadcast))


async def forget_recipients(source: Source, before: datetime, at_most: int) -> int:
    """Delete recipients of broadcasts that ended before `before`; return how many."""
    return int((await _FORGET.records(source, before, at_most))[0]["recipients"])


async def remove_files(source: Source, before: datetime) -> bool:
    """Remove the files of a broadcast that ended before `before`; return False if there is none."""
    return bool(await _REMOVE_FILES.records(source, before))


def _fields(draft: BroadcastDraft) -> dict[str, object]:
    fields = structs.asdict(draft)
    fields.pop("audience")
    return fields | structs.asdict(draft.audience)
