"""Read and write webhook endpoints, the queue of posts, and recorded attempts."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from uuid import UUID

from engine.base import ids
from engine.events.webhooks.types import (
    FAILING,
    CandidateRow,
    Claimed,
    DeliveryRow,
    DueRow,
    EndpointRow,
    ExchangeRow,
    HeadersRow,
    HealthRow,
    Recorded,
    SecretRow,
    StoredEventRow,
)
from engine.store.queries import Conn, Queries, Source, columns
from engine.store.row_sets import Column, RowSet

HEALTH_WINDOW = timedelta(hours=25)  # hours that began within it: the last 24, and the present one
RECORDED = RowSet(
    "recorded",
    Recorded,
    Column("webhook_id", "uuid", attrgetter("post.webhook_id")),
    Column("event_id", "uuid", attrgetter("post.event_id")),
    Column("attempts", "integer", attrgetter("post.attempts")),
    Column("wait_s", "float8"),
    Column("id"),
    Column("seq", "bigint", attrgetter("post.seq")),
    Column("started_at"),
    Column("milliseconds", "integer"),
    Column("delivered"),
    Column("status_code", "smallint"),
    Column("answer"),
    Column("error"),
    Column("url"),
    Column("signature"),
    Column("signature_previous"),
    Column("signature_standard"),
    Column("late_s", "integer"),
    Column("answer_headers"),
)
_SQL = Queries.beside(__file__)
INSERT = _SQL.command("insert_webhook")
CLAIM = _SQL.rows("claim", Claimed)
LIST = _SQL.rows("list_webhooks", EndpointRow)
READ = _SQL.rows("read_webhook", EndpointRow)
FIND_URL = _SQL.rows("find_webhook_with_url", EndpointRow)
LOCK_HEADERS = _SQL.rows("lock_headers", HeadersRow)
CHANGE_SIGNATURES_AND_RETRIES = _SQL.command("change_signatures_and_retries")
LOCK_SECRET = _SQL.rows("lock_secret", SecretRow)
CHANGE = _SQL.rows("change_webhook", EndpointRow)
ROTATE = _SQL.command("rotate_secret")
DELETE = _SQL.command("delete_webhook")
FORGET_HOURS = _SQL.command("forget_hours")
FORGET_DELETED = _SQL.command("forget_deleted")
QUEUE_ONE = _SQL.command("queue_one")
EXCHANGES = _SQL.rows("list_exchanges", ExchangeRow)
EVENT = _SQL.rows("read_event", StoredEventRow)
DUE = _SQL.rows("due_webhooks", DueRow)
_HEALTH = _SQL.rows("read_health", HealthRow)
_COUNT = _SQL.command("count_webhooks")
_REPLAY = _SQL.command("replay")
_REPLAY_MANY = _SQL.command("replay_many")
_RETRY_NOW = _SQL.command("retry_now")
_CANDIDATES = _SQL.rows("delivery_candidates", CandidateRow)
_DELIVERIES = _SQL.rows("list_deliveries", DeliveryRow)
_RECORD = _SQL.wide("record_posts", RECORDED)
_RELEASE = _SQL.command("release")
_GIVE_UP = _SQL.command("give_up")

_FIRST, _LAST = UUID(int=0), UUID(int=(1 << 128) - 1)


async def count(connection: Conn, account: UUID) -> int:
    """Count the endpoints that are not deleted."""
    return int((await _COUNT.records(connection, account))[0]["live"])


async def health(source: Source, account: UUID, webhooks: Collection[UUID], at: datetime) -> dict[UUID, HealthRow]:
    """Return how endpoints respond, by id; counts cover the 24 hours before `at`, rounded up to whole hours."""
    if not webhooks:
        return {}
    return {row.id: row for row in await _HEALTH.fetch(source, account, list(webhooks), at - HEALTH_WINDOW)}


async def candidates(
    source: Source, account: UUID, webhook: UUID, *, before: UUID | None, since: UUID | None = None, limit: int
) -> list[CandidateRow]:
    """List deliveries of an endpoint, newest event first, including those without an attempt yet.

    Event ids are below `before` and not below `since`.
    """
    return await _CANDIDATES.fetch(source, webhook, account, before or _LAST, since or _FIRST, limit)


async def deliveries(source: Source, account: UUID, webhook: UUID, found: Sequence[CandidateRow]) -> list[DeliveryRow]:
    """Read the given deliveries of an endpoint with their attempts, newest event first."""
    if not found:
        return []
    return await _DELIVERIES.fetch(
        source, webhook, account, [one.event_id for one in found], [one.seq for one in found]
    )


async def replay_many(connection: Source, account: UUID, webhook: UUID, found: Sequence[CandidateRow]) -> int:
    """Queue the given deliveries again, or those that wait for a retry now; return how many of either it were."""
    waiting = [one.event_id for one in found if one.state == "pending"]
    ended = [one for one in found if one.state != "pending"]
    queued = 0
    if waiting:
        queued += len(await _RETRY_NOW.records(connection, webhook, account, waiting))
    if ended:
        events, seqs = [one.event_id for one in ended], [one.seq for one in ended]
        queued += len(await _REPLAY_MANY.records(connection, webhook, account, events, seqs))
    return queued


async def replay(connection: Source, account: UUID, event: UUID, webhook: UUID | None) -> list[UUID]:
    """Queue an event again; return its endpoints, none if no endpoint of the account ever received it."""
    return [row["webhook_id"] for row in await _REPLAY.records(connection, account, event, webhook)]


async def claim(source: Source, rooms: Mapping[UUID, int], lease_s: float) -> list[Claimed]:
    """Claim due posts, `rooms[endpoint]` for each; order them by endpoint and `seq`."""
    return await CLAIM.fetch(source, list(rooms), list(rooms.values()), lease_s)


async def record(connection: Source, posts: Sequence[Recorded]) -> set[UUID]:
    """Record attempts at claimed posts in one statement; return the ids of those whose queue row had not changed."""
    return {row["id"] for row in await _RECORD.run(connection, RECORDED.of(posts), failing=FAILING)}


async def release(source: Source, posts: Sequence[Claimed]) -> None:
    """Release claimed posts without an attempt."""
    await _RELEASE.execute(source, *columns([(one.webhook_id, one.event_id, one.attempts) for one in posts], 3))


async def give_up(source: Source, webhooks: Collection[UUID], due_before: datetime, *, max_each: int, why: str) -> int:
    """End posts that were due before `due_before`, at most `max_each` per endpoint; return their number."""
    return len(await _GIVE_UP.records(source, list(webhooks), due_before, max_each, why, ids.uuid7()))
