"""The queue of pending deliveries: one row per message and recipient domain, deleted when it is settled.

A hint leads to a fresh row; otherwise its due time does. Only the process that owns the row's shard loads it.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock, ids
from engine.store.queries import Queries, Source, columns

_SQL = Queries.beside(__file__, "queue.sql")
BROADCAST_PRIORITY = 3  # mail_priority() in the database: the last one
SEALED = "[[0, {"  # begins the recipients of a sealed row (engine.delivery.sealed_mail), as jsonb prints them


class Row(Struct):
    """A pending delivery with its message."""

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
    waiting: str | None  # the reason for a delay, if an event has recorded it
    mime: bytes | None  # None if larger than LARGE_BYTES: `load_body` reads it before the attempt
    smtputf8: bool
    released_at: datetime | None = None  # of a scheduled message, whose id is as old as its acceptance
    deliver_by: datetime | None = None  # no attempt is made after it
    min_tls: str | None = None  # the TLS that the message requires; None: as the recipient's domain requires
    priority: int = 1  # 0 goes first; mail_priority() in the database sets it
    suspect: bool = True  # False: no address was suppressed when the row was read
    waits: str | None = None  # JSON: its waiting time by cause so far (engine.delivery.waits)
    forgets: bool = False  # `mime` is encrypted with a key of its own, which is deleted after the last outcome
    content_key: bytes | None = None  # that key, encrypted; None in a row without its content, and once it is deleted
    traceparent: str | None = None

    @property
    def accepted_at(self) -> datetime:
        """Return the time from which retries are counted: acceptance, or release of a scheduled message."""
        return self.released_at or _made_at(self.message_id)

    @property
    def pairs(self) -> list[tuple[int, str]]:
        """Return (place in the message, address) of each recipient that is not settled.

        A sealed row, whose recipient only `MailSealer.open` can read, gives `*@domain`.
        """
        if self.is_sealed:
            return [(place, f"*@{self.domain}") for place, _ in orjson.loads(self.recipients)]
        return [(place, address) for place, address in orjson.loads(self.recipients)]

    @property
    def is_sealed(self) -> bool:
        """Return True if the content and the recipient are encrypted (engine.delivery.sealed_mail)."""
        return self.recipients.startswith(SEALED)

    @property
    def event_scope(self) -> dict[str, object]:
        """Return the `to_domain` for an event about this delivery, or nothing if it covers all recipients of the
        message.
        """
        return {} if self.total == 1 or self.total == len(self.pairs) else {"to_domain": self.domain}

    @property
    def key(self) -> tuple[UUID, str]:
        """Return the primary key."""
        return self.message_id, self.domain


class Body(Struct, frozen=True):
    """A message as composed."""

    mime: bytes


class DueKey(Struct, frozen=True):
    """The key of a due row, and its priority."""

    message_id: UUID
    domain: str
    shard: int
    priority: int = 1

    @property
    def key(self) -> tuple[UUID, str]:
        """Return the primary key."""
        return self.message_id, self.domain


class Outline(Struct, frozen=True):
    """A row's key, owner and priority, without its content."""

    message_id: UUID
    shard: int
    account_id: UUID
    priority: int
    domain: str


class Holder(Struct, frozen=True):
    """An account's mail of one priority within a shard."""

    priority: int
    account_id: UUID


class FairKey(Struct, frozen=True):
    """A due row found by a round over a shard's accounts; `message_id` is None for an account that has none due."""

    message_id: UUID | None
    domain: str | None
    shard: int
    priority: int
    account_id: UUID


BEFORE_ALL = Holder(-1, UUID(int=0))
_NOW = timedelta()
LARGE_BYTES = 256 * 1024  # the queries repeat this number
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
    """The number of rows in one shard, and their earliest due time."""

    shard: int
    rows: int
    oldest_due: datetime


OLDEST = _SQL.command("oldest_due")
DEPTHS = _SQL.rows("depths", Depth)


async def load(connection: Source, keys: Collection[tuple[UUID, str]]) -> list[Row]:
    """Load rows by key; rows settled meanwhile are missing from the result."""
    if not keys:
        return []
    messages = [key[0] for key in keys]
    return await LOAD.fetch(connection, messages, [key[1] for key in keys], min(messages), max(messages))


async def load_light(connection: Source, keys: Collection[tuple[UUID, str]]) -> list[Row]:
    """Load rows by key without their bodies, for rows to be postponed; settled rows are missing from the result."""
    return await LOAD_LIGHT.fetch(connection, *columns(list(keys), 2)) if keys else []


async def load_hinted(connection: Source, messages: Collection[UUID], shards: Collection[int]) -> list[Row]:
    """Load the rows of these messages that lie in the given shards."""
    if not messages:
        return []
    return await HINTED.fetch(connection, list(messages), list(shards), min(messages), max(messages))


async def load_body(connection: Source, message: UUID) -> bytes | None:
    """Return the message's bytes, of any size, or None if the message no longer exists."""
    found = await BODY.first(connection, message)
    return None if found is None else found.mime


async def due(
    connection: Source, shards: Collection[int], *, max_each: int, exclude: Collection[UUID], ahead: timedelta = _NOW
) -> list[DueKey]:
    """Return rows of the shards that are due, oldest first within each, at most `max_each` per shard.

    Skips the messages `exclude`. With `ahead`, also returns fresh rows that fall due within that time: their hints are
    late.
    """
    return await DUE.fetch(connection, list(shards), max_each, list(exclude), ahead)


async def outline(connection: Source, messages: Collection[UUID], shards: Collection[int]) -> list[Outline]:
    """Return owner and priority of the rows of these messages in the given shards."""
    return await OUTLINE.fetch(connection, list(messages), list(shards))


async def due_fairly(
    connection: Source,
    behind: Mapping[int, Holder],
    *,
    holders: int,
    max_each: int,
    exclude: Collection[UUID],
) -> list[FairKey]:
    """Return due rows of shards in rounds over accounts and priorities.

    For each shard, returns up to `max_each` rows of each of the next `holders` holders behind the given one, in order.
    """
    starts = list(behind.values())
    return await DUE_FAIRLY.fetch(
        connection,
        list(behind),
        [one.priority for one in starts],
        [one.account_id for one in starts],
        holders,
        max_each,
        list(exclude),
    )


async def postpone(connection: Source, rows: Collection[Row], until: datetime, reason: str | None) -> None:
    """Set the due time of rows to `until` (by this host's clock, converted to the database's), without counting an
    attempt; store their waiting times.
    """
    wait = until - clock.now()
    await POSTPONE.execute(connection, *columns([(*row.key, row.waits) for row in rows], 3), wait, reason)


async def show_next(connection: Source, rows: Iterable[tuple[Row, datetime | None]]) -> None:
    """Show the new time of the next attempt on recipients that were tried before; None if it is not known yet.

    Without this, a message would show a time that has passed.
    """
    shown = [(row.message_id, place, at) for row, at in rows if row.attempts for place, _ in row.pairs]
    if shown:
        messages = [one[0] for one in shown]
        await SHOW_NEXT.execute(connection, *columns(shown, 3), min(messages), max(messages))


async def bury(connection: Source, key: tuple[UUID, str], until: datetime, reason: str) -> None:
    """Postpone a row whose outcome could not be stored until `until`, and count an attempt."""
    await BURY.execute(connection, *key, until - clock.now(), reason)


async def oldest_due(connection: Source, shards: int) -> datetime | None:
    """Return the earliest due time of all shards, by one index lookup per shard."""
    return (await OLDEST.records(connection, shards))[0]["oldest_due"]  # type: ignore[no-any-return]


def _made_at(message: UUID) -> datetime:
    return datetime.fromtimestamp(ids.milliseconds_of(message) / 1000, UTC)
