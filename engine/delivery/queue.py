"""The queue of pending deliveries: one row per message and recipient domain, deleted when it is settled.

A row is found by its hint while that is fresh, otherwise by its due time. Only the owner of its shard loads it.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock, ids
from engine.store.queries import Queries, Source, columns

_SQL = Queries.beside(__file__, "queue.sql")


class Row(Struct):
    """One delivery to make, with the message it carries."""

    message_id: UUID
    domain: str
    shard: int
    account_id: UUID
    from_domain: str
    recipients: str  # JSON, see `pairs`
    total: int
    due_at: datetime
    attempts: int
    signature: bytes | None
    waiting: str | None  # why it was held back, where that has been told
    mime: bytes | None  # None: larger than LARGE_BYTES, fetched by `load_body` when it is its turn
    smtputf8: bool
    released_at: datetime | None = None  # of a scheduled message: its id is as old as its scheduling
    deliver_by: datetime | None = None  # no try is made after it
    min_tls: str | None = None  # the least TLS that the message asks for; None: as the recipient's domain wants it
    priority: int = 1  # 0 goes first; mail_priority() in the database
    suspect: bool = True  # one of the addresses may be suppressed; False: none was when the row was read

    @property
    def accepted_at(self) -> datetime:
        """When the message was accepted for delivery: what its retries are counted from."""
        return self.released_at or _made_at(self.message_id)

    @property
    def pairs(self) -> list[tuple[int, str]]:
        """(place among the message's recipients, address) of those still to settle."""
        return [(place, address) for place, address in orjson.loads(self.recipients)]

    @property
    def whose(self) -> dict[str, object]:
        """Whom an event about this delivery as such concerns, said where the message has other recipients."""
        return {} if self.total == 1 or self.total == len(self.pairs) else {"to_domain": self.domain}

    @property
    def key(self) -> tuple[UUID, str]:
        """What identifies the row."""
        return self.message_id, self.domain


class Body(Struct, frozen=True):
    """A message as it was composed."""

    mime: bytes


class DueKey(Struct, frozen=True):
    """A row that has fallen due."""

    message_id: UUID
    domain: str
    shard: int


class Outline(Struct, frozen=True):
    """Whose a row is, without its content."""

    message_id: UUID
    shard: int
    account_id: UUID
    priority: int
    domain: str


class Holder(Struct, frozen=True):
    """An account's mail of one priority in a shard."""

    priority: int
    account_id: UUID


class FairKey(Struct, frozen=True):
    """A due row found while the accounts of a shard took turns; without a message, an account that has none due."""

    message_id: UUID | None
    domain: str | None
    shard: int
    priority: int
    account_id: UUID


BEFORE_ALL = Holder(-1, UUID(int=0))
_NOW = timedelta()
LARGE_BYTES = 256 * 1024  # the queries say so too
BODY = _SQL.rows("load_body", Body)
LOAD = _SQL.rows("load_rows", Row)
LOAD_LIGHT = _SQL.rows("load_light", Row)
HINTED = _SQL.rows("load_hinted", Row)
OUTLINE = _SQL.rows("outline_hinted", Outline)
DUE = _SQL.rows("due_rows", DueKey)
DUE_FAIRLY = _SQL.rows("due_fairly", FairKey)
BURY = _SQL.command("bury_row")
POSTPONE = _SQL.command("postpone_rows")
SHOW_NEXT = _SQL.command("show_next")


class Depth(Struct):
    """What waits in one shard."""

    shard: int
    rows: int
    oldest_due: datetime


OLDEST = _SQL.command("oldest_due")
DEPTHS = _SQL.rows("depths", Depth)


async def load(connection: Source, keys: Collection[tuple[UUID, str]]) -> list[Row]:
    """Rows by key; those settled meanwhile are left out."""
    if not keys:
        return []
    messages = [key[0] for key in keys]
    return await LOAD.fetch(connection, messages, [key[1] for key in keys], min(messages), max(messages))


async def load_light(connection: Source, keys: Collection[tuple[UUID, str]]) -> list[Row]:
    """Rows by key without their bodies, to be put back; those settled meanwhile are left out."""
    return await LOAD_LIGHT.fetch(connection, *columns(list(keys), 2)) if keys else []


async def load_hinted(connection: Source, messages: Collection[UUID], shards: Collection[int]) -> list[Row]:
    """Rows of the hinted messages that lie in the given shards."""
    if not messages:
        return []
    return await HINTED.fetch(connection, list(messages), list(shards), min(messages), max(messages))


async def load_body(connection: Source, message: UUID) -> bytes | None:
    """The message's bytes, whatever their number; None when it is gone."""
    found = await BODY.first(connection, message)
    return None if found is None else found.mime


async def due(
    connection: Source, shards: Collection[int], *, most_each: int, but: Collection[UUID], ahead: timedelta = _NOW
) -> list[DueKey]:
    """Rows of the shards that are due now, oldest first within each, without the messages already in hand; with `ahead`
    also fresh rows whose hints still have so much time."""
    return await DUE.fetch(connection, list(shards), most_each, list(but), ahead)


async def outline(connection: Source, messages: Collection[UUID], shards: Collection[int]) -> list[Outline]:
    """Whose the hinted messages' rows in the given shards are."""
    return await OUTLINE.fetch(connection, list(messages), list(shards))


async def due_fairly(
    connection: Source,
    behind: Mapping[int, Holder],
    *,
    holders: int,
    most_each: int,
    but: Collection[UUID],
) -> list[FairKey]:
    """Due rows of shards, account by account and priority by priority: for each shard so many holders behind the one
    given, `most_each` rows of each, in the order of the walk."""
    starts = list(behind.values())
    return await DUE_FAIRLY.fetch(
        connection,
        list(behind),
        [one.priority for one in starts],
        [one.account_id for one in starts],
        holders,
        most_each,
        list(but),
    )


async def postpone(connection: Source, keys: Collection[tuple[UUID, str]], until: datetime, reason: str | None) -> None:
    """Look at these rows again at `until` by this host's clock, from now on reckoned by the database's; no attempt is
    counted."""
    wait = until - clock.now()
    await POSTPONE.execute(connection, [key[0] for key in keys], [key[1] for key in keys], wait, reason)


async def show_next(connection: Source, rows: Iterable[tuple[Row, datetime | None]]) -> None:
    """Recipients that were tried before are next tried then, or nobody can tell when: what their message shows of them
    must not be a moment that has passed."""
    shown = [(row.message_id, place, at) for row, at in rows if row.attempts for place, _ in row.pairs]
    if shown:
        messages = [one[0] for one in shown]
        await SHOW_NEXT.execute(connection, *columns(shown, 3), min(messages), max(messages))


async def bury(connection: Source, key: tuple[UUID, str], until: datetime, reason: str) -> None:
    """Set a row aside until `until` (as in `postpone`) whose outcome could not be stored; counts as an attempt."""
    await BURY.execute(connection, *key, until - clock.now(), reason)


async def oldest_due(connection: Source, shards: int) -> datetime | None:
    """The earliest due time of all shards: one look at the index for each."""
    return (await OLDEST.records(connection, shards))[0]["oldest_due"]  # type: ignore[no-any-return]


def _made_at(message: UUID) -> datetime:
    return datetime.fromtimestamp(ids.milliseconds_of(message) / 1000, UTC)
