"""Read and write webhook endpoints, the queue of posts, and recorded attempts."""

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
    """Count the endpoints that are not deleted."""
    return int((await _COUNT.records(connection, account))[0]["live"])


async def deliveries(
    source: Source, account: UUID, webhook: UUID, *, before: UUID | None, limit: int
) -> list[DeliveryRow]:
    """List deliveries of an endpoint, newest event first, including those without an attempt yet."""
    return await _DELIVERIES.fetch(source, webhook, account, before or _LAST, limit)


async def replay(connection: Source, account: UUID, event: UUID, webhook: UUID | None) -> list[UUID]:
    """Queue an event again; return its endpoints, none if no endpoint of the account ever received it."""
    return [row["webhook_id"] for row in await _REPLAY.records(connection, account, event, webhook)]


async def claim(source: Source, rooms: Mapping[UUID, int], lease_s: float) -> list[Claimed]:
    """Claim due posts, `rooms[endpoint]` for each; order them by endpoint and `seq`."""
    return await _CLAIM.fetch(source, list(rooms), list(rooms.values()), lease_s)


async def record(connection: Source, posts: Sequence[Recorded]) -> set[UUID]:
    """Record attempts at claimed posts in one statement; return the ids of those whose queue row had not changed."""
    rows = [
        (
            one.post.webhook_id, one.post.event_id, one.post.attempts, one.wait_s, one.id, one.post.seq, one.started_at,
            one.milliseconds, one.delivered, one.status_code, one.answer, one.error,
        )
        for one in posts
    ]  # fmt: skip
    return {row["id"] for row in await _RECORD.records(connection, *columns(rows, 12))}


async def release(source: Source, posts: Sequence[Claimed]) -> None:
    """Release claimed posts without an attempt."""
    await _RELEASE.execute(source, *columns([(one.webhook_id, one.event_id, one.attempts) for one in posts], 3))


async def give_up(source: Source, webhooks: Collection[UUID], due_before: datetime, *, max_each: int, why: str) -> int:
    """End posts that were due before `due_before`, at most `max_each` per endpoint; return their number."""
    return len(await _GIVE_UP.records(source, list(webhooks), due_before, max_each, why, ids.uuid7()))
