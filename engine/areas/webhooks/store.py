"""Rows of webhook endpoints, of what is to be posted to them, and of what was posted."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from engine.areas.webhooks.types import Claimed, DeliveryRow, DueRow, EndpointRow, Recorded, SecretRow
from engine.base import ids
from engine.store.queries import Conn, Queries, Source, columns

_SQL = Queries.beside(__file__)
INSERT = _SQL.command("insert_webhook")
LIST = _SQL.rows("list_webhooks", EndpointRow)
READ = _SQL.rows("read_webhook", EndpointRow)
SECRET = _SQL.rows("read_secret", SecretRow)
CHANGE = _SQL.rows("change_webhook", EndpointRow)
ROTATE = _SQL.command("rotate_secret")
DELETE = _SQL.command("delete_webhook")
FORGET_DELETED = _SQL.command("forget_deleted")
QUEUE_ONE = _SQL.command("queue_one")
DUE = _SQL.rows("due_webhooks", DueRow)
_COUNT = _SQL.command("count_webhooks")
_REPLAY = _SQL.command("replay")
_DELIVERIES = _SQL.rows("list_deliveries", DeliveryRow)
_CLAIM = _SQL.rows("claim", Claimed)
_RECORD = _SQL.command("record_posts")
_RELEASE = _SQL.command("release")
_GIVE_UP = _SQL.command("give_up")

_LAST = UUID(int=(1 << 128) - 1)


async def count(connection: Conn, account: UUID) -> int:
    """Endpoints that are not deleted."""
    return int((await _COUNT.records(connection, account))[0]["live"])


async def deliveries(
    source: Source, account: UUID, webhook: UUID, *, before: UUID | None, limit: int
) -> list[DeliveryRow]:
    """Deliveries of an endpoint, newest event first, those that wait for their first attempt among them."""
    return await _DELIVERIES.fetch(source, webhook, account, before or _LAST, limit)


async def replay(connection: Source, account: UUID, event: UUID, webhook: UUID | None) -> list[UUID]:
    """Queue an event once more; gives the endpoints it goes to, none when no endpoint of the account ever had it."""
    return [row["webhook_id"] for row in await _REPLAY.records(connection, account, event, webhook)]


async def claim(source: Source, rooms: Mapping[UUID, int], lease_s: float) -> list[Claimed]:
    """Take posts that are due, so many for each endpoint; by endpoint and in the order of the log."""
    return await _CLAIM.fetch(source, list(rooms), list(rooms.values()), lease_s)


async def record(connection: Source, posts: Sequence[Recorded]) -> set[UUID]:
    """Write what became of claimed posts, in one statement; gives the ids of those that still stood as claimed."""
    rows = [
        (
            one.post.webhook_id, one.post.event_id, one.post.attempts, one.wait_s, one.id, one.post.seq, one.started_at,
            one.milliseconds, one.delivered, one.status_code, one.answer, one.error,
        )
        for one in posts
    ]  # fmt: skip
    return {row["id"] for row in await _RECORD.records(connection, *columns(rows, 12))}


async def release(source: Source, posts: Sequence[Claimed]) -> None:
    """Hand claimed posts back without an attempt."""
    await _RELEASE.execute(source, *columns([(one.webhook_id, one.event_id, one.attempts) for one in posts], 3))


async def give_up(source: Source, webhooks: Collection[UUID], due_before: datetime, *, most_each: int, why: str) -> int:
    """End posts that could not even be tried for long; gives how many."""
    return len(await _GIVE_UP.records(source, list(webhooks), due_before, most_each, why, ids.uuid7()))
