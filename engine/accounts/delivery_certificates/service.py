"""Issue delivery certificates. A message that is large is read and hashed in a thread, a few at a time."""

import asyncio
import os
from typing import Final
from uuid import UUID

import asyncpg

from engine.accounts.delivery_certificates import signing, statement, store
from engine.accounts.delivery_certificates.types import SALT_BYTES, CertifiedContent, SignedStatement
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.secrets import Pepper, Unsealable
from engine.base.settings import Settings
from engine.sending.messages import store as messages
from engine.store.concurrency_limiter import LARGE_MESSAGES

LARGE_BYTES: Final = 128 * 1024  # hashing more, twice, may take a millisecond


async def issue(pool: asyncpg.Pool, settings: Settings, account: UUID, message: UUID) -> SignedStatement:
    """Return a certificate about a message of an account, signed now.

    Raises the 404 if nothing is left of the message, and the 409s of `statement.check`. The rows are read before the
    content: an erasure in between leaves a certificate without content, never one that still holds digests of it.
    """
    row = statement.check(await store.read(pool, account, message))
    content_salt, log_salt = os.urandom(SALT_BYTES), os.urandom(SALT_BYTES)
    content = await _content(pool, settings.pepper, account, message, row.size_bytes, content_salt)
    now = clock.now()
    salts = [os.urandom(SALT_BYTES) for _ in statement.outcomes(row)]
    said, addresses = statement.statement_of(
        row, content, installation=settings.public_url.rstrip("/"), account=account, message=message, at=now,
        salts=salts, log_salt=log_salt,
    )  # fmt: skip
    key = await store.active_key(pool, settings.pepper, now)
    try:
        private = signing.opened(key, settings.pepper)
    except Unsealable:
        raise Refusal(
            ErrorType.UNAVAILABLE,
            "The key that signs certificates does not open under the present pepper. An operator can rotate the key.",
        ) from None
    beside = signing.salts_of(None if content is None else content_salt, salts, addresses, log_salt)
    return SignedStatement(signing.signed(said, beside, key=private, kid=key.kid), said, addresses)


async def _content(
    pool: asyncpg.Pool, pepper: Pepper, account: UUID, message: UUID, size_bytes: int | None, salt: bytes
) -> CertifiedContent | None:
    if size_bytes is None:
        return None
    if size_bytes <= LARGE_BYTES:
        mime = await messages.body(pool, account, message, pepper=pepper)
        return None if mime is None else statement.content_of(mime, salt)
    async with LARGE_MESSAGES.of(account):
        mime = await messages.body(pool, account, message, pepper=pepper)
        return None if mime is None else await asyncio.to_thread(statement.content_of, mime, salt)
