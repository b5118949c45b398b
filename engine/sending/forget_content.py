"""Delete the content of messages that do not retain it: with their last outcome, or some hours after it.

Such content is stored encrypted with a key of its own (engine.delivery.sealed_mail), so deleting the key makes it
unreadable at once. Settling deletes both in its own statement, which includes CONTENT_FORGOTTEN; whatever else ends a
message calls `forget_ended` in its transaction. A worker deletes what stays for some hours.
"""

from collections.abc import Collection
from functools import partial
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import structs

from engine.base.secrets import Pepper, Unsealable
from engine.base.settings import Settings
from engine.delivery.sealed_mail import MailSealer
from engine.sending.emails.types import Prepared
from engine.store.jobs import Job
from engine.store.large_mail import run_sized
from engine.store.queries import Conn, Queries

BATCH: Final = 200  # messages whose content one transaction deletes
MAX_BATCHES: Final = 50  # of one run

_SQL = Queries.beside(__file__, "forget_content.sql")
CONTENT_FORGOTTEN: Final = _SQL.fragment("content_forgotten")
_FORGET_ENDED = _SQL.wide("forget_ended")
_TAKE_DUE = _SQL.command("take_due")
DELETE_BODIES: Final = _SQL.command("delete_bodies")

_log = structlog.get_logger("content")


def sealed_apart(message: Prepared, sealer: MailSealer) -> Prepared:
    """Return a message that does not retain its content with that content encrypted, and its key."""
    mime, key = sealer.seal_apart(message.id, message.mime)
    return structs.replace(message, mime=mime, content_key=key)


async def opened(
    message: UUID, mime: bytes, *, forgets: bool, sealed_key: bytes | None, pepper: Pepper
) -> bytes | None:
    """Return stored content as composed, or None if its key is gone or belongs to another pepper.

    `forgets`: the message does not retain its content, so `mime` is encrypted.
    """
    if not forgets:
        return mime
    try:
        return await run_sized(len(mime), partial(MailSealer(pepper).open_apart, message, mime, sealed_key))
    except Unsealable as error:
        if sealed_key is not None:
            _log.error("content not readable", message=str(message), error=str(error))
        return None


async def forget_ended(connection: Conn, messages: Collection[UUID]) -> None:
    """Forget the content of those of the messages that have ended, within the transaction that ended them."""
    if messages:
        await _FORGET_ENDED.run(connection, messages=list(messages), low=min(messages), high=max(messages))


async def forget_due(pool: asyncpg.Pool, _: Settings) -> int:
    """Delete content whose hours after the last outcome are over; return of how many messages."""
    forgotten = 0
    for _batch in range(MAX_BATCHES):
        async with pool.acquire() as connection, connection.transaction():
            due = [row["message_id"] for row in await _TAKE_DUE.records(connection, BATCH)]
            if due:
                await DELETE_BODIES.execute(connection, due, min(due), max(due))
        forgotten += len(due)
        if len(due) < BATCH:
            break
    return forgotten


JOB = Job("content", every_s=60, run=forget_due)
