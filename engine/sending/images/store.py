"""Read and write the images of an account."""

from collections.abc import Collection
from uuid import UUID

from engine.base import ids
from engine.mail.parts import MailAttachment
from engine.sending.images.types import (
    EXTENSIONS,
    EncodedImage,
    ImageContent,
    ImageRow,
    ImageTotals,
    ImageUse,
    ServedImage,
)
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_images", ImageRow)
READ = _SQL.rows("read_image", ImageRow)
READ_SAME = _SQL.rows("read_same_image", ImageRow)
_READ_MANY = _SQL.rows("read_images", ImageRow)
_FILES = _SQL.rows("load_files", ImageContent)
SERVE = _SQL.rows("serve_image", ServedImage)
_TOTALS = _SQL.rows("count_images", ImageTotals)
_INSERT = _SQL.wide("insert_image")
USES = _SQL.rows("list_image_uses", ImageUse)
DELETE = _SQL.command("delete_image")


async def totals(source: Source, account: UUID) -> ImageTotals:
    """Count the images of the account and their bytes."""
    found = await _TOTALS.first(source, account)
    assert found is not None
    return found


async def insert(connection: Conn, account: UUID, row: ImageRow, image: EncodedImage) -> None:
    """Insert an image."""
    await _INSERT.run(
        connection, account=account, id=row.id, sha256=row.sha256, filename=row.filename,
        content_type=row.content_type, width=row.width, height=row.height, size_bytes=row.size_bytes,
        content=image.content, created_at=row.created_at,
    )  # fmt: skip


async def named(source: Source, account: UUID, names: Collection[str]) -> dict[str, ImageRow]:
    """Return the images with these public ids that the account has, by id."""
    wanted = _parsed(names)
    if not wanted:
        return {}
    return {row.public_id: row for row in await _READ_MANY.fetch(source, account, wanted)}


async def files(source: Source, account: UUID, names: Collection[str]) -> tuple[MailAttachment, ...]:
    """Return the images with these public ids as parts of a message, whose HTML names them as `cid:` and the id."""
    wanted = _parsed(names)
    if not wanted:
        return ()
    rows = sorted(await _FILES.fetch(source, account, wanted), key=lambda row: wanted.index(row.id))
    return tuple(
        MailAttachment(
            filename=f"{row.filename.rpartition('.')[0] or row.filename}.{EXTENSIONS[row.content_type]}",
            content_type=row.content_type,
            content=row.content,
            disposition="inline",
            cid=ids.format_id(ids.Kind.IMAGE, row.id),
        )
        for row in rows
    )


def _parsed(names: Collection[str]) -> list[UUID]:
    """Return the ids among the names; a name that is none belongs to no image."""
    found: list[UUID] = []
    for name in names:
        try:
            found.append(ids.parse_id(ids.Kind.IMAGE, name))
        except ids.WrongId:
            continue
    return found
