"""Uploading, listing and deleting the images of emails that are made of blocks."""

from api.areas.images.schemas import Image, ImageIn, ImagesPage
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType
from engine.sending.images import service, store
from engine.sending.images.types import MAX_UPLOAD_BASE64, ImageRow

_MAX_BODY_BYTES = MAX_UPLOAD_BASE64 + 256 * 1024  # escaped line breaks, the name


async def list_images(call: Call, page: Page) -> ImagesPage:
    """Return a page of the account's images."""
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, page.probe)
    return ImagesPage(*page.of(rows, lambda row: _image(call, row)))


async def upload_image(call: Call, body: ImageIn) -> Image:
    """Store an image; the same bytes give the image that exists."""
    row = await service.upload(
        call.services.pool, call.account_id, filename=body.filename, content=body.content, actor=call.actor
    )
    return _image(call, row)


async def read_image(call: Call) -> Image:
    """Return one image."""
    return _image(call, await service.read(call.services.pool, call.account_id, call.id))


async def delete_image(call: Call) -> None:
    """Delete an image that nothing shows."""
    await service.delete(call.services.pool, call.account_id, call.id, actor=call.actor)


def _image(call: Call, row: ImageRow) -> Image:
    return Image(
        id=row.public_id,
        url=row.url(call.settings.public_url),
        filename=row.filename,
        width=row.width,
        height=row.height,
        size=row.size_bytes,
        content_type=row.content_type,
        created_at=clock.iso(row.created_at),
    )


_KEYS = Area(
    "Templates",
    reads=("templates:read",),
    writes=("templates:write",),
    limited_keys=LimitedKeys.FREE,
    id_of=ids.Kind.IMAGE,
)
OPERATIONS = (
    Operation("GET", "/v1/images", list_images, "List images", _KEYS, page=ids.Kind.IMAGE, lagging=True),
    Operation(
        "POST",
        "/v1/images",
        upload_image,
        "Upload an image for emails made of blocks",
        _KEYS,
        note="Images are re-encoded without metadata. The same bytes give the image that was uploaded before.",
        success=201,
        max_body_bytes=_MAX_BODY_BYTES,
        refusals=(ErrorType.PLAN_LIMIT_REACHED,),
    ),
    Operation("GET", "/v1/images/{id}", read_image, "Read an image", _KEYS),
    Operation(
        "DELETE",
        "/v1/images/{id}",
        delete_image,
        "Delete an image that no template and no unfinished broadcast shows",
        _KEYS,
        note="Emails that were sent show a gap in its place, unless they carry it.",
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        refusals=(ErrorType.CONFLICT,),
    ),
)
