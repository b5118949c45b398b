"""Send messages again: the stored content as new messages, with the checks and counts of any send."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base.errors import Refusal, not_found, unavailable
from engine.sending.accept import Acceptor
from engine.sending.admission import Decision
from engine.sending.emails import resent
from engine.sending.emails.resent import SentMessage
from engine.sending.emails.types import Checked, MinTls, Prepared, RefusedRequest
from engine.sending.forget_content import opened
from engine.sending.preparation import Origin, batch_too_large
from engine.store.database_errors import DatabaseUnavailable
from engine.store.large_mail import run_sized
from engine.store.queries import Queries

MAX_KEY: Final = 224  # characters of a bulk request's key: those of its messages add their ids to it

_SQL = Queries.beside(__file__, "resend.sql")


class SentContent(Struct, frozen=True):
    """The stored content of a message."""

    mime: bytes
    smtputf8: bool
    sealed_key: bytes | None  # of content that is encrypted with a key of its own


class ResendOrder(Struct, frozen=True):
    """A message to send again."""

    message: UUID
    idempotency_key: str | None = None
    min_tls: MinTls | None = None

    @property
    def key(self) -> tuple[str | None, bytes]:
        """Return the idempotency key, and the digest that tells two requests with it apart."""
        return self.idempotency_key, resent.digest_of(self.message, self.min_tls)


_SENT = _SQL.rows("sent_messages", SentMessage)
_CONTENT = _SQL.rows("sent_content", SentContent)


async def resend(
    pool: asyncpg.Pool, acceptor: Acceptor, orders: Sequence[ResendOrder], origin: Origin, *, max_bytes: int
) -> list[Decision]:
    """Accept the content of each message as a new one, in one transaction, each decided on its own.

    Returns one decision per order, in order. Messages that take the total size over `max_bytes` are refused.
    """
    rows = await _SENT.fetch(pool, origin.account_id, [one.message for one in orders])
    known = {row.id: row for row in rows}
    made: list[Checked] = []
    left, reread = max_bytes, set[str]()
    for one in orders:
        await asyncio.sleep(0)  # composing all of them at once would delay other requests
        try:
            message = await _prepared(pool, acceptor, one, known, origin, left if made else None, reread)
        except Refusal as refusal:
            made.append(RefusedRequest(origin.account_id, refusal, *one.key))
            continue
        left -= len(message.mime)
        made.append(message)
    return await acceptor.accept_set(made)


async def _prepared(
    pool: asyncpg.Pool,
    acceptor: Acceptor,
    order: ResendOrder,
    known: Mapping[UUID, SentMessage],
    origin: Origin,
    left: int | None,
    reread: set[str],
) -> Prepared:
    message = known.get(order.message)
    if message is None or not (origin.reach is None or origin.reach.covers(message.from_domain, message.stream)):
        raise not_found("message")
    resent.check_resendable(message)
    try:
        facts = await acceptor.preparer.checked_facts(origin, message.from_domain, message.stream, reread)
    except DatabaseUnavailable as error:
        raise unavailable() from error
    if left is not None and message.size_bytes > left:
        raise batch_too_large(acceptor.preparer.max_request_bytes)
    content = await _CONTENT.first(pool, message.id)
    forgets, mime = message.content_hours is not None, None
    if content is not None:
        mime = await opened(
            message.id, content.mime, forgets=forgets, sealed_key=content.sealed_key, pepper=acceptor.pepper
        )
    if content is None or mime is None:
        raise resent.erased(message)
    work = partial(
        resent.prepared,
        message,
        mime,
        smtputf8=content.smtputf8,
        min_tls=order.min_tls,
        idempotency_key=order.idempotency_key,
        facts=facts,
    )
    made = await run_sized(len(mime), work)
    if origin.reach is not None:
        origin.reach.check_recipients(one.canonical for one in made.recipients)
    return made
