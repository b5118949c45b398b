"""Outcomes for accepted messages without a mail server: the real settling, given the reply that one would have sent."""

from datetime import timedelta
from uuid import UUID

import asyncpg
import orjson

from engine.base import clock, ids
from engine.delivery import queue
from engine.delivery.outcome import classify
from engine.delivery.waits import WaitCause
from engine.mail.replies import Answer, Phase, Reply
from engine.sending.settle import DeliveryAttempt, Result, Settler


async def settle(
    pool: asyncpg.Pool,
    message: str,
    *replies: tuple[str, int, str],
    again_after: timedelta | None = None,
    mx: str | None = None,
    waits: dict[WaitCause, int] | None = None,
    fair_share: float = 1.0,
) -> None:
    """Settle one attempt at each pending delivery of `message` (`msg_…`).

    `replies` are (address, code, text that begins with an enhanced code); recipients without one were accepted
    with 250. A deferred recipient waits `again_after`, or has failed when that is None. `mx` is the server that
    answered; `waits` are milliseconds by cause.
    """
    said = {address: (code, text) for address, code, text in replies}
    member = await _member(pool)
    settler = Settler(pool, lambda: member, on_flush=lambda _count, _seconds: None)
    found = ids.parse_id(ids.Kind.MESSAGE, message)
    domains = await pool.fetch("SELECT domain FROM queue WHERE message_id = $1 ORDER BY domain", found)
    for row in await queue.load(pool, [(found, one["domain"]) for one in domains]):
        now, host = clock.now(), mx or f"mx.{row.domain}"
        results = tuple(
            Result(place, address, classify(_answer(*said.get(address, (250, "2.0.0 Ok: queued")))))
            for place, address in orjson.loads(row.recipients)
        )
        assert await settler.settle(
            DeliveryAttempt(
                row=row,
                started_at=now,
                ended_at=now,
                results=results,
                conversation={"mx": host, "tls": "TLSv1.3", "greeting": f"220 {host} ready"},
                signature=None,
                next_at=None if again_after is None else now + again_after,
                waits=waits,
                fair_share=fair_share,
            )
        )


async def _member(pool: asyncpg.Pool) -> UUID:
    member = ids.uuid7()
    await pool.execute(
        "INSERT INTO shard_members (id, name, expires_at) VALUES ($1, 'tests', now() + interval '1 hour')", member
    )
    return member


def _answer(code: int, text: str) -> Answer:
    phase = Phase.BODY if code < 300 else Phase.RCPT
    return Answer(phase, Reply(code, text, text.split(maxsplit=1)[0]))
