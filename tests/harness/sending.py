"""Accepting and settling without doors: what one process has of each, on real servers."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.delivery import queue
from engine.delivery.hints import Hints
from engine.delivery.outcome import Outcome, classify
from engine.delivery.queue import Row
from engine.mail.replies import Answer, Phase, Reply
from engine.sending.accept import Acceptor
from engine.sending.admission import Decision
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import Accepted, SendRequest
from engine.sending.preparation import Origin
from engine.sending.settle import DeliveryAttempt, Result, Settler
from engine.store import redis as redis_store
from engine.store.postgres import open_pool
from tests.harness.accounts import TestAccount
from tests.harness.patience import PATIENCE_S

Sent = Accepted | Refusal


class Process(msgspec.Struct):
    """The parts of one process that accept and settle."""

    acceptor: Acceptor
    pool: asyncpg.Pool
    hints: Hints
    flushes: list[int]

    async def send(self, account: TestAccount, **fields: object) -> Accepted:
        """Send one request; raises its Refusal."""
        return await accept(self.acceptor, request_of(account, **fields), Origin(account.id, "api"))

    async def try_send(self, account: TestAccount, **fields: object) -> Sent:
        """Send one request; return its Refusal as a value."""
        try:
            return await self.send(account, **fields)
        except Refusal as refusal:
            return refusal


@contextlib.asynccontextmanager
async def process(settings: Settings, *, connections: int = 4) -> AsyncIterator[Process]:
    """A process of its own: another pool, another group commit, another share of the ceiling."""
    assert settings.database_url is not None
    assert settings.redis_url is not None
    pool = await open_pool(settings.database_url, name="accept test", largest=connections)
    client = redis_store.connect(settings.redis_url, timeout_s=PATIENCE_S)
    hints = Hints(client)
    flushes: list[int] = []
    acceptor = Acceptor(pool, hints, settings, on_flush=lambda count, _seconds: flushes.append(count))
    try:
        yield Process(acceptor, pool, hints, flushes)
    finally:
        await hints.drain()
        await client.aclose()
        await pool.close()


async def accept(acceptor: Acceptor, request: SendRequest | Submitted, origin: Origin) -> Accepted:
    """Check and accept one message, as each door does."""
    return await acceptor.accept(await acceptor.preparer.check(request, origin))


async def accept_set(
    acceptor: Acceptor, requests: Sequence[SendRequest | Refusal], origin: Origin, *, whole: bool = False
) -> list[Decision]:
    """Check and accept messages, as a batch does."""
    return await acceptor.accept_set(await acceptor.preparer.check_all(requests, origin), whole=whole)


def request_of(account: TestAccount, **fields: object) -> SendRequest:
    """A request as the API decodes it."""
    return msgspec.convert(account.email(**fields), SendRequest)


def accepted(results: list[Sent]) -> list[Accepted]:
    """Return the accepted results."""
    return [one for one in results if isinstance(one, Accepted)]


def refused(results: list[Sent]) -> list[Refusal]:
    """Return the refusals."""
    return [one for one in results if isinstance(one, Refusal)]


def message_id(answer: Accepted) -> UUID:
    """The stored id of an accepted message."""
    return ids.parse_id(ids.Kind.MESSAGE, answer.id)


async def head_of(pool: asyncpg.Pool, account: TestAccount) -> asyncpg.Record:
    """The account's head as it is stored."""
    row = await pool.fetchrow("SELECT * FROM account_heads WHERE account_id = $1", account.id)
    assert row is not None
    return row


async def stored(pool: asyncpg.Pool, account: TestAccount) -> int:
    """Return the number of messages of the account."""
    return int(await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id))


async def suppress(pool: asyncpg.Pool, account: TestAccount, address: str, reason: str = "bounce") -> None:
    """Put an address on the account's suppression list."""
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, $2, $3)", account.id, address, reason
    )


async def member(pool: asyncpg.Pool) -> UUID:
    """Make a member whose lease is valid for an hour."""
    fresh = ids.uuid7()
    await pool.execute(
        "INSERT INTO shard_members (id, name, expires_at) VALUES ($1, 'settle test', now() + interval '1 hour')", fresh
    )
    return fresh


def settler_of(pool: asyncpg.Pool, owner: UUID) -> Settler:
    """Settling in the name of one member."""
    return Settler(pool, lambda: owner, on_flush=lambda _count, _seconds: None)


async def rows_of(pool: asyncpg.Pool, message: UUID) -> list[Row]:
    """The pending deliveries of a message, by domain."""
    domains = await pool.fetch("SELECT domain FROM queue WHERE message_id = $1 ORDER BY domain", message)
    return sorted(await queue.load(pool, [(message, one["domain"]) for one in domains]), key=lambda row: row.domain)


def said(code: int, text: str) -> Outcome:
    """The outcome of a reply to RCPT, or of a 2xx to the final dot; `text` begins with the enhanced code."""
    phase = Phase.BODY if code < 300 else Phase.RCPT
    return classify(Answer(phase, Reply(code, text, text.split(maxsplit=1)[0])))


DELIVERED = said(250, "2.0.0 Ok: queued")
BOUNCED = said(550, "5.1.1 No such user")
BLOCKED = said(550, "5.7.1 Your address is on our blocklist")
DEFERRED = said(450, "4.2.2 Mailbox busy")


def attempt_at(
    row: Row,
    *outcomes: Outcome,
    next_at: datetime | None = None,
    signature: bytes | None = None,
    suppressed: str | None = None,
) -> DeliveryAttempt:
    """Make an attempt at a row: an outcome for each of its recipients in turn, the last repeated."""
    now = clock.now()
    results = tuple(
        Result(place, address, None, suppressed)
        if suppressed is not None
        else Result(place, address, outcomes[min(index, len(outcomes) - 1)])
        for index, (place, address) in enumerate(row.pairs)
    )
    return DeliveryAttempt(
        row=row,
        started_at=now,
        ended_at=now,
        results=results,
        conversation=None if suppressed is not None else {"mx": f"mx.{row.domain}", "tls": "TLSv1.3"},
        signature=signature,
        next_at=next_at,
    )


async def until(condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> float:
    """Wait until something holds; returns the seconds it took, fails after `within_s`."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"not within {within_s} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - began
