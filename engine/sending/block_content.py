"""Make the HTML and text of templates and broadcasts from their blocks, with the account's images."""

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, structs

from engine.base.errors import invalid
from engine.mail.blocks.html import PlacedImage
from engine.mail.blocks.render import rendered
from engine.mail.blocks.types import BlockDocument, document_of, images_of, text_of
from engine.sending.images import store as images
from engine.sending.images.types import MAX_CARRIED_BYTES, ImageRow
from engine.sending.templates.types import MAX_CONTENT


class BlockContent(Struct, frozen=True):
    """Content that was made of blocks; `blocks` is the document as it is stored."""

    html: str
    text: str
    blocks: str


async def made(
    pool: asyncpg.Pool,
    account: UUID,
    document: BlockDocument,
    public_url: str,
    *,
    text: str | None = None,
    for_browser: bool = False,
) -> BlockContent:
    """Render a document; raise the 400 that names the block at fault, or the image that the account lacks.

    `text` replaces the text that the blocks make. `for_browser`: images have their web address even if messages carry
    them.
    """
    owned = await images.named(pool, account, images_of(document))
    if document.images == "inline":
        _check_carried(owned.values())
    inline = document.images == "inline" and not for_browser
    placed = {name: _placed(row, public_url, inline=inline) for name, row in owned.items()}
    made = await asyncio.to_thread(_made, document, placed)
    return made if text is None else structs.replace(made, text=text)


async def shown(pool: asyncpg.Pool, account: UUID, blocks: str | None, html: str | None, public_url: str) -> str | None:
    """Return HTML as browsers show it: images that messages carry get their web address."""
    if blocks is None or html is None:
        return html
    document = document_of(blocks)
    if document.images != "inline":
        return html
    for name, row in (await images.named(pool, account, images_of(document))).items():
        html = html.replace(f"cid:{name}", row.url(public_url))
    return html


def forbid_beside(given: object, name: str = "html") -> None:
    """Raise the 400 for other content beside blocks: the field `name`, which may be absent (UNSET) or null."""
    if given is not None and given is not UNSET:
        raise invalid(name, f"`{name}` and `blocks` can't be combined. Leave one of the two out.")


def _check_carried(owned: Iterable[ImageRow]) -> None:
    size = sum(row.size_bytes for row in owned)
    if size > MAX_CARRIED_BYTES:
        raise invalid(
            "blocks.images",
            f"The images have {size:,} bytes; a message can carry {MAX_CARRIED_BYTES:,}. Set `blocks.images` to "
            "`hosted`, or use smaller images.",
        )


def _made(document: BlockDocument, placed: Mapping[str, PlacedImage]) -> BlockContent:
    parts = rendered(document, placed)
    for part in (parts.html, parts.text):
        if len(part) > MAX_CONTENT:
            raise invalid(
                "blocks",
                f"The blocks make an email of {len(part):,} characters; the limit is {MAX_CONTENT:,}. Remove some.",
            )
    return BlockContent(parts.html, parts.text, text_of(document))


def _placed(row: ImageRow, public_url: str, *, inline: bool) -> PlacedImage:
    return PlacedImage(f"cid:{row.public_id}" if inline else row.url(public_url), row.width, row.height)
