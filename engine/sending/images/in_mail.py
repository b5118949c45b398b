"""Load the images that messages carry: those of a block document with `images` = `inline`."""

from uuid import UUID

from engine.base.errors import invalid
from engine.mail.blocks.types import document_of, images_of
from engine.mail.parts import MailAttachment
from engine.sending.images import store
from engine.store.queries import Source


async def carried(source: Source, account: UUID, blocks: str | None) -> tuple[MailAttachment, ...]:
    """Return the images that each message of this content carries; `blocks` is a stored document.

    Call it once per version or broadcast, not per recipient.
    """
    if blocks is None:
        return ()
    document = document_of(blocks)
    return await store.files(source, account, images_of(document)) if document.images == "inline" else ()


async def check_owned(source: Source, account: UUID, blocks: str | None) -> None:
    """Raise the 400 for blocks that name an image which the account lacks.

    Call it under the lock of the account's head: it keeps an image from being deleted meanwhile.
    """
    if blocks is None:
        return
    wanted = images_of(document_of(blocks))
    owned = await store.named(source, account, wanted)
    missing = next((name for name in wanted if name not in owned), None)
    if missing is not None:
        raise invalid(wanted[missing], f"The image {missing!r} was deleted. Choose another one.")
