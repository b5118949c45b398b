"""Upload and delete images; each change is one transaction with its event."""

import asyncio
import hashlib
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, invalid, not_found
from engine.base.events import AccountEvent
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.mail.attachments import blocked_extension
from engine.sending.images import store
from engine.sending.images.encode import read_image
from engine.sending.images.types import MAX_ACCOUNT_BYTES, MAX_IMAGES, ImageRow, ImageTotals
from engine.store.concurrency_limiter import ConcurrencyLimiter
from engine.store.database_clock import new_time

WHAT: Final = "image"
_MAX_NAMED: Final = 10  # templates and broadcasts in the message of an error
# The largest PNG takes 160 MB and two seconds, the largest WebP three times that memory: one at a time.
_DECODING = ConcurrencyLimiter("decoding of images", at_once=1, each=1)
_DECODING_WAIT_S: Final = 20.0


async def read(pool: asyncpg.Pool, account: UUID, image: UUID) -> ImageRow:
    """Return an image; raise the 404 if there is none."""
    return existing(await store.READ.first(pool, account, image), WHAT)


async def upload(
    pool: asyncpg.Pool, account: UUID, *, filename: str, content: str, actor: str | None = None
) -> ImageRow:
    """Store the image in base64 `content` and return it; the same bytes give the image that the account has.

    Raises the 400 for a file that is no image, and the 403 above the account's limits.
    """
    _check_name(filename)
    async with _DECODING.of(account, wait_s=_DECODING_WAIT_S):
        image = await asyncio.to_thread(read_image, content)
    digest = hashlib.sha256(image.content).digest()
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        known = await store.READ_SAME.first(connection, account, digest)
        if known is not None:
            return known
        _check_room(await store.totals(connection, account), len(image.content))
        at = await new_time(connection)
        row = ImageRow(
            ids.uuid7_at(at), digest, filename, image.content_type, image.width, image.height, len(image.content),
            clock.whole_milliseconds(at),
        )  # fmt: skip
        await store.insert(connection, account, row, image)
        await record_event(connection, account, AccountEvent.IMAGE_CREATED, _detail(row), actor=actor)
    return row


async def delete(pool: asyncpg.Pool, account: UUID, image: UUID, *, actor: str | None = None) -> None:
    """Delete the image; raise the 404 if there is none, the 409 that names what shows it."""
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        row = await store.READ.first(connection, account, image)
        if row is None:
            raise not_found(WHAT)
        uses = await store.USES.fetch(connection, account, row.public_id, _MAX_NAMED + 1)
        if uses:
            named = ", ".join(f"{one.kind} {one.id!r}" for one in uses[:_MAX_NAMED])
            more = " and more" if len(uses) > _MAX_NAMED else ""
            raise Refusal(
                ErrorType.CONFLICT,
                f"The image is used: {named}{more}. Remove it there first.",
                id=row.public_id,
            )
        await store.DELETE.execute(connection, account, image)
        await record_event(connection, account, AccountEvent.IMAGE_DELETED, _detail(row), actor=actor)


def _detail(row: ImageRow) -> dict[str, object]:
    return {"id": row.public_id, "filename": row.filename}


def _check_name(filename: str) -> None:
    if not filename.isprintable() or "/" in filename or "\\" in filename:
        raise invalid("filename", f"`filename` is {filename!r}; use a plain file name without slashes or line breaks.")
    extension = blocked_extension(filename)
    if extension is not None:
        raise invalid("filename", f"`filename` ends in {extension}, which mailbox providers refuse. Rename the image.")


def _check_room(held: ImageTotals, size_bytes: int) -> None:
    if held.images >= MAX_IMAGES:
        raise Refusal(
            ErrorType.PLAN_LIMIT_REACHED,
            f"Your account has {held.images:,} of {MAX_IMAGES:,} images. Delete images that no template uses.",
            resource="images",
            limit=MAX_IMAGES,
            used=held.images,
        )
    if held.total_bytes + size_bytes > MAX_ACCOUNT_BYTES:
        raise Refusal(
            ErrorType.PLAN_LIMIT_REACHED,
            f"The images of your account would have {held.total_bytes + size_bytes:,} bytes; the limit is "
            f"{MAX_ACCOUNT_BYTES:,}. Delete images that no template uses.",
            resource="image_bytes",
            limit=MAX_ACCOUNT_BYTES,
            used=held.total_bytes,
        )
