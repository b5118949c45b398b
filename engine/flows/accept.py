"""Accepting a message: the order of business from a decoded request to the commit behind a 202.

sender domain verified → stream open → shape, recipients, headers, attachments → MIME composed → (group commit:)
replayed key → not suppressed → daily and monthly allowance → platform ceiling → stored with its `accepted`
event and its queue rows. Then the hint; then the answer.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from uuid import UUID

import asyncpg
import orjson
import structlog
from msgspec import Struct

from engine.areas.domains import store as domains
from engine.areas.emails import rules
from engine.areas.emails.types import Accepted, Prepared, SendRequest
from engine.areas.streams import store as streams
from engine.areas.suppressions import store as suppressions
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found, unavailable
from engine.base.events import EventType
from engine.base.settings import Settings
from engine.delivery import partition
from engine.delivery.hints import Hints
from engine.ledger import heads, log, quota
from engine.ledger.heads import Head
from engine.store.caches import Cache
from engine.store.group import GroupCommit, Overloaded
from engine.store.postgres import AWAY, BAD_DATA
from engine.store.queries import Conn, Queries, columns

_SQL = Queries.beside(__file__, "accept.sql")
_REPLAYS = _SQL.command("replays")
_DAY_COUNTS = _SQL.command("day_counts")
_LEASE = _SQL.command("lease_ceiling")
_ADD_LEASED = _SQL.command("add_leased")
_INSERT = _SQL.command("insert_accepted")
_STORED = _SQL.command("stored_message")

LEASE_CHUNK = 1_000
LARGE_REQUEST_BYTES = 256 * 1024  # composing more than this takes over a millisecond: off the event loop
ARRIVED_TRIES, ARRIVED_PAUSE_S = 10, 0.5  # Postgres is back from a crash within seconds, or not soon
COMMIT_TIMEOUT_S = 15  # then the client hears 503; the transaction itself is bounded by Postgres' time-outs

_log = structlog.get_logger("accept")


class Door(Struct, frozen=True):
    """Where a request came in, and for whom."""

    account_id: UUID
    source: str  # `api` or `smtp`


class Pending(Struct):
    """A prepared message on its way through the group commit, with what its transaction decides."""

    message: Prepared
    suppressed: tuple[str, str] | None = None  # (address, reason)


Decision = Accepted | Refusal


class Acceptor:
    """Accepts messages for one process; every concurrent request shares its transactions."""

    def __init__(
        self, pool: asyncpg.Pool, hints: Hints, settings: Settings, *, on_flush: Callable[[int, float], None]
    ) -> None:
        self._pool = pool
        self._hints = hints
        self._settings = settings
        self._on_flush = on_flush
        self._ceiling = Ceiling(settings.platform_daily_ceiling)
        self._group: GroupCommit[Pending, Accepted] = GroupCommit(self._flush, bad_data=BAD_DATA)
        self.domains: Cache[UUID, dict[str, str]] = Cache("domains", self._load_domains)
        self.streams: Cache[UUID, frozenset[str]] = Cache("streams", self._load_streams)

    async def accept(self, request: SendRequest, door: Door, *, size_hint: int = 0) -> Accepted:
        """Accept one message; returns after its commit.

        Raises the Refusal that stopped it. A replayed `idempotencyKey` answers the first message's id even
        where the request would be refused by now.
        """
        try:
            message = await self._prepare(request, door, size_hint)
        except Refusal:
            replay = await self._replay_of(request, door, size_hint)
            if replay is not None:
                return replay
            raise
        except AWAY as error:
            raise unavailable() from error
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                return await self._group.submit(Pending(message))
        except BAD_DATA as error:
            raise Refusal(ErrorType.INVALID_REQUEST, "The message holds a value that can't be stored.") from error
        except (*AWAY, Overloaded) as error:
            _log.warning("acceptance unavailable", error=repr(error))
            raise unavailable() from error

    async def drain(self) -> None:
        """Wait for the flushes in flight and give the unused part of the ceiling's lease back."""
        await self._group.idle()
        with suppress(*AWAY):  # a lease that can't be given back lies unused until midnight
            async with self._pool.acquire() as connection:
                await self._ceiling.give_back(connection)

    async def _prepare(self, request: SendRequest, door: Door, size_hint: int) -> Prepared:
        sender = rules.sender_of(request)
        if (await self.domains.get(door.account_id)).get(sender.domain) != "verified":
            raise Refusal(
                ErrorType.DOMAIN_NOT_VERIFIED,
                f"{sender.domain} is not a verified sending domain of this account. Add and verify it first.",
                domain=sender.domain,
            )
        if request.stream not in await self.streams.get(door.account_id):
            raise invalid("stream", f"There is no stream named {request.stream!r} on this account.")
        work = (request, sender)
        facts = {
            "account_id": door.account_id,
            "message_id": ids.uuid7(),
            "source": door.source,
            "at": clock.now(),
            "most_bytes": self._settings.max_message_bytes,
        }
        if size_hint > LARGE_REQUEST_BYTES:
            return await asyncio.to_thread(rules.prepare, *work, **facts)  # type: ignore[arg-type]
        return rules.prepare(*work, **facts)  # type: ignore[arg-type]

    async def _replay_of(self, request: SendRequest, door: Door, size_hint: int) -> Accepted | None:
        if request.idempotency_key is None or "\0" in request.idempotency_key:
            return None
        try:
            rows = await _REPLAYS.records(self._pool, [door.account_id], [request.idempotency_key])
        except AWAY as error:
            raise unavailable() from error
        if not rows:
            return None
        large = size_hint > LARGE_REQUEST_BYTES
        digest = await asyncio.to_thread(rules.request_digest, request) if large else rules.request_digest(request)
        return _replayed(rows[0]["message_id"], rows[0]["request_digest"], digest)

    async def _flush(self, batch: Sequence[Pending]) -> list[Accepted | Exception]:
        started = asyncio.get_running_loop().time()
        at = clock.now()
        stored: list[Prepared] | None = None
        try:
            async with self._pool.acquire() as connection:
                await self._mark_suppressed(connection, batch)
                await self._ceiling.reserve(connection, at.date(), len(batch))
                async with connection.transaction():
                    decisions, stored = await self._commit(connection, batch, at)
        except AWAY:
            if not stored or not await self._arrived(stored):
                raise
        self._ceiling.take(at.date(), len(stored))
        self._hints.announce(_hinted(stored, self._settings.shards))
        self._on_flush(len(batch), asyncio.get_running_loop().time() - started)
        return decisions

    async def _arrived(self, stored: list[Prepared]) -> bool:
        """Whether a transaction was committed whose COMMIT got no answer: its first message tells for all."""
        for _ in range(ARRIVED_TRIES):
            with suppress(*AWAY):
                return bool(await _STORED.records(self._pool, stored[0].id))
            await asyncio.sleep(ARRIVED_PAUSE_S)
        return False

    async def _mark_suppressed(self, connection: Conn, batch: Sequence[Pending]) -> None:
        """Look every recipient up at once. Before the locks: a suppression of this very moment is caught again
        right before the attempt."""
        pairs = [(item.message.account_id, one.canonical) for item in batch for one in item.message.recipients]
        found = await suppressions.find(connection, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        for item in batch:
            for one in item.message.recipients if found else ():
                reason = found.get((item.message.account_id, one.canonical))
                if reason is not None:
                    item.suppressed = (one.mailbox.address, reason)
                    break

    async def _commit(
        self, connection: Conn, batch: Sequence[Pending], at: datetime
    ) -> tuple[list[Accepted | Exception], list[Prepared]]:
        locked = await heads.lock(connection, {item.message.account_id for item in batch})
        await _turn_all(connection, locked, at.date())
        replays = await _load_replays(connection, batch)
        decisions: list[Accepted | Exception] = []
        stored: list[Prepared] = []
        entries: list[log.Entry] = []
        room = self._ceiling.room(at.date())
        for item in batch:
            message = item.message
            head = locked.get(message.account_id)
            if head is None:  # erased between authentication and this moment
                decisions.append(not_found("account"))
                continue
            decision = _decide(item, head, replays, room=room - len(stored), at=at)
            if isinstance(decision, Accepted) and decision.status == "queued":
                stored.append(message)
                entries.append(_accepted_entry(message, at))
                if message.idempotency_key is not None:
                    key = (message.account_id, message.idempotency_key)
                    replays[key] = (message.id, message.request_digest)
            elif item.suppressed is not None and isinstance(decision, Refusal):
                entries.append(_suppressed_entry(message, item.suppressed, at))
            decisions.append(decision)
        events = log.seal_all(locked, entries)
        due = at + timedelta(seconds=self._settings.fresh_due_s)
        await _INSERT.execute(
            connection,
            *_message_columns(stored),
            *_recipient_columns(stored),
            *_queue_columns(stored, self._settings.shards, due),
            *log.columns(events),
            *_once_columns(stored),
            *heads.columns(locked.values()),
        )
        return decisions, stored

    async def _load_domains(self, account: UUID) -> dict[str, str]:
        return {row.name: row.status for row in await domains.NAMES.fetch(self._pool, account)}

    async def _load_streams(self, account: UUID) -> frozenset[str]:
        return frozenset(row.slug for row in await streams.LIST.fetch(self._pool, account))


class Ceiling:
    """The platform's daily ceiling as one process sees it: a lease of part of it."""

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._day: date | None = None
        self._left = 0

    def room(self, day: date) -> int:
        """Messages this process may still accept on that day without asking again."""
        return self._left if self._day == day else 0

    async def reserve(self, connection: Conn, day: date, need: int) -> None:
        """Lease more when the room is smaller than the need; a lease is committed on its own."""
        if self.room(day) >= need:
            return
        async with connection.transaction():
            rows = await _LEASE.records(connection, day, need - self.room(day), LEASE_CHUNK, self._ceiling)
            granted = int(rows[0]["granted"])
            await _ADD_LEASED.execute(connection, day, granted)
        self._left = self.room(day) + granted
        self._day = day

    def take(self, day: date, count: int) -> None:
        """Count accepted messages against the lease."""
        if self._day == day:
            self._left -= count

    async def give_back(self, connection: Conn) -> None:
        """Return what is unused."""
        if self._day is not None and self._left:
            await _ADD_LEASED.execute(connection, self._day, -self._left)
            self._left = 0


async def _turn_all(connection: Conn, locked: dict[UUID, Head], day: date) -> None:
    """Turn the heads to the day; the figures of the day before are read only for those that are reviewed."""
    reviewed = [account for account, head in locked.items() if quota.due_for_review(head, day)]
    counts = {}
    if reviewed:
        rows = await _DAY_COUNTS.records(connection, reviewed, day - timedelta(days=1))
        counts = {row["account_id"]: (row["bounced"], row["complained"], row["settled"]) for row in rows}
    for account, head in locked.items():
        bounced, complained, settled = counts.get(account, (0, 0, 0))
        quota.turn_to(head, day, bounced=bounced, complained=complained, settled=settled)


Replays = dict[tuple[UUID, str], tuple[UUID, bytes]]


async def _load_replays(connection: Conn, batch: Sequence[Pending]) -> Replays:
    """Keys used before. Asked under the heads' locks, so that parallel posts of one key see each other."""
    keyed = [item.message for item in batch if item.message.idempotency_key is not None]
    if not keyed:
        return {}
    rows = await _REPLAYS.records(
        connection, [message.account_id for message in keyed], [message.idempotency_key for message in keyed]
    )
    return {(row["account_id"], row["key"]): (row["message_id"], row["request_digest"]) for row in rows}


def _decide(item: Pending, head: Head, replays: Replays, *, room: int, at: datetime) -> Accepted | Refusal:
    """One message's decision under its account's lock; counts it when it is accepted."""
    message = item.message
    if message.idempotency_key is not None:
        earlier = replays.get((message.account_id, message.idempotency_key))
        if earlier is not None:
            return _replayed(earlier[0], earlier[1], message.request_digest)
    if item.suppressed is not None:
        address, reason = item.suppressed
        return Refusal(
            ErrorType.SUPPRESSED,
            f"{address} is on the suppression list ({reason}); nothing was sent to anyone.",
            address=address,
            reason=reason,
        )
    refusal = quota.take(head, at)
    if refusal is not None:
        return refusal
    if room <= 0:
        quota.untake(head)
        return quota.platform_refusal()
    return Accepted(message.public_id, "queued")


def _replayed(message_id: UUID, digest: bytes, now: bytes) -> Accepted:
    return Accepted(ids.format_id(ids.Kind.MESSAGE, message_id), "duplicate", body_differs=digest != now)


def _accepted_entry(message: Prepared, at: datetime) -> log.Entry:
    detail: dict[str, object] = {
        "to_domain": message.recipients[0].mailbox.domain,
        "from_domain": message.from_domain,
        "source": message.source,
    }
    if message.attachments:
        detail["attachments"] = [
            {
                "filename": one.filename,
                "content_type": one.content_type,
                "size_bytes": one.size_bytes,
                "sha256": one.sha256,
            }
            for one in message.attachments
        ]
    return log.Entry(message.account_id, EventType.ACCEPTED, log.detail_text(detail), at, message.id, message.public_id)


def _suppressed_entry(message: Prepared, suppressed: tuple[str, str], at: datetime) -> log.Entry:
    detail = log.detail_text({"address": suppressed[0], "reason": suppressed[1]})
    return log.Entry(message.account_id, EventType.SUPPRESSED, detail, at)


def _queue_groups(message: Prepared) -> dict[str, list[tuple[int, str]]]:
    """Recipients by domain: one queue row, and one SMTP transaction, each."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for one in message.recipients:
        groups.setdefault(one.mailbox.domain, []).append((one.n, one.mailbox.address))
    return groups


def _hinted(stored: Iterable[Prepared], shards: int) -> dict[int, list[UUID]]:
    hinted: dict[int, list[UUID]] = {}
    for message in stored:
        for domain in _queue_groups(message):
            shard = partition.shard_of(domain, shards)
            own = hinted.setdefault(shard, [])
            if not own or own[-1] != message.id:
                own.append(message.id)
    return hinted


def _message_columns(stored: list[Prepared]) -> tuple[list[object], ...]:
    rows = [
        (
            one.id, one.account_id, "queued", one.source, one.sender, one.from_domain, one.reply_to, one.subject,
            one.stream, _json(one.tags), _json(one.metadata), _json(one.attachments), len(one.recipients),
            len(one.mime), one.mime, one.smtputf8,
        )
        for one in stored
    ]  # fmt: skip
    return columns(rows, 16)


def _recipient_columns(stored: list[Prepared]) -> tuple[list[object], ...]:
    rows = [
        (message.id, one.n, message.account_id, one.kind, one.mailbox.address, one.mailbox.name or None)
        for message in stored
        for one in message.recipients
    ]
    return columns(rows, 6)


def _queue_columns(stored: list[Prepared], shards: int, due: datetime) -> tuple[list[object], ...]:
    rows = [
        (
            message.id, domain, partition.shard_of(domain, shards), message.account_id, message.from_domain,
            orjson.dumps(group).decode(), len(message.recipients), due,
        )
        for message in stored
        for domain, group in _queue_groups(message).items()
    ]  # fmt: skip
    return columns(rows, 8)


def _once_columns(stored: list[Prepared]) -> tuple[list[object], ...]:
    rows = [
        (one.account_id, one.idempotency_key, one.id, one.request_digest)
        for one in stored
        if one.idempotency_key is not None
    ]
    return columns(rows, 4)


def _json(value: object) -> str | None:
    """JSON text, or None for nothing: an absent value costs no bytes in its row."""
    if not value:
        return None
    return orjson.dumps(value, default=_plain).decode()


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    raise TypeError(type(value))
