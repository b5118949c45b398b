"""Find the recipients of a broadcast: the members of its list, or the contacts of its segment."""

from uuid import UUID

import orjson

from engine.audience.broadcasts.types import REVIEWED_ABOVE, BroadcastAudience
from engine.audience.contacts import segment_rules
from engine.audience.contacts import store as contacts
from engine.audience.contacts.store import Audience
from engine.base.errors import Refusal
from engine.store.concurrency_limiter import SEARCHES
from engine.store.queries import Conn, Queries, Source

COUNT_TIMEOUT_S = 5.0
SNAPSHOT_TIMEOUT_S = 300.0

_SQL = Queries.beside(__file__, "audience.sql")
_LIST = _SQL.command("find_list")
_SEGMENT = _SQL.command("find_segment")

# Those that go on count whenever they started: several that were paused for days may be resumed together.
_RECENT = """SELECT r.address FROM broadcasts b JOIN broadcast_recipients r ON r.broadcast_id = b.id
WHERE b.account_id = $1 AND b.id <> $2 AND b.started_at IS NOT NULL
  AND (b.status IN ('sending', 'paused') OR (b.started_at > now() - interval '24 hours' AND r.state = 'accepted'))"""


async def audience_of(source: Source, account: UUID, chosen: BroadcastAudience, *, first: int = 1) -> Audience | None:
    """Return the query of the recipients, its arguments numbered from `first`; None if the list or segment is gone."""
    if chosen.list_id is not None:
        found = await _LIST.records(source, account, chosen.list_id)
        return contacts.audience_of_list(account, chosen.list_id, first=first) if found else None
    found = await _SEGMENT.records(source, account, chosen.segment_id)
    if not found:
        return None
    filter_ = segment_rules.parse(orjson.loads(found[0]["filter"]))
    return contacts.audience_of_segment(account, filter_, first=first)


async def count(source: Source, account: UUID, chosen: BroadcastAudience) -> int | None:
    """Count the recipients as of now: the kept count of a list; None if the list or segment is gone.

    Raises TimeoutError for a segment that takes too long.
    """
    if chosen.list_id is not None:
        found = await _LIST.records(source, account, chosen.list_id)
        return int(found[0]["contacts"]) if found else None
    audience = await audience_of(source, account, chosen)
    return None if audience is None else await contacts.count_audience(source, audience, timeout_s=COUNT_TIMEOUT_S)


async def count_now(source: Source, account: UUID, chosen: BroadcastAudience) -> int | None:
    """Count the recipients to show them, 0 if the list or segment is gone; None for a segment that takes too long, or
    while other searches leave no place.
    """
    if chosen.list_id is not None:
        return await count(source, account, chosen) or 0
    try:
        async with SEARCHES.of(account):
            return await count(source, account, chosen) or 0
    except (TimeoutError, Refusal):
        return None


async def needs_review(connection: Source, account: UUID, broadcast: UUID, chosen: BroadcastAudience) -> bool:
    """Return True if the recipients of this broadcast and of the account's others that go on or are of the last 24
    hours, each address once, are more than an account without an approved broadcast may write to.
    """
    alone = await audience_of(connection, account, chosen)
    if alone is None:
        return False
    bounded = f"SELECT count(*) FROM (SELECT 1 FROM ({alone.sql}) a LIMIT {REVIEWED_ABOVE + 1}) n"  # noqa: S608 - values are arguments
    if await connection.fetchval(bounded, *alone.arguments) > REVIEWED_ABOVE:
        return True
    audience = await audience_of(connection, account, chosen, first=3)
    assert audience is not None
    both = f"SELECT count(*) FROM (SELECT address FROM ({audience.sql}) a UNION {_RECENT}) n"  # noqa: S608 - as above
    found: int = await connection.fetchval(both, account, broadcast, *audience.arguments)
    return found > REVIEWED_ABOVE


async def take_recipients(connection: Conn, broadcast: UUID, audience: Audience) -> None:
    """Store the audience, whose arguments are numbered from 2, as the recipients of a broadcast."""
    await connection.execute(f"SET LOCAL statement_timeout = '{SNAPSHOT_TIMEOUT_S:.0f}s'")
    rows = f"SELECT $1::uuid, a.contact_id, a.address FROM ({audience.sql}) a ORDER BY a.contact_id"  # noqa: S608 - as above
    insert = f"INSERT INTO broadcast_recipients (broadcast_id, contact_id, address) {rows}"
    await connection.execute(insert, broadcast, *audience.arguments, timeout=SNAPSHOT_TIMEOUT_S)
