"""Requests and replies of images."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.sending.images.types import MAX_FILE_NAME, MAX_UPLOAD_BASE64


class ImageIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An image to upload."""

    filename: Annotated[
        str, Meta(min_length=1, max_length=MAX_FILE_NAME, description="Its name", examples=["lamp.png"])
    ]
    content: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_UPLOAD_BASE64,
            description="A PNG, JPEG, GIF or WebP of up to 5 MB and 40 megapixels, in base64. It is scaled down to "
            "1,440 pixels, and its metadata is removed",
            examples=[
                "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
            ],
        ),
    ]


class Image(Struct, rename="camel", kw_only=True):
    """An uploaded image as emails show it."""

    id: str
    url: Annotated[
        str,
        Meta(
            description="Where readers load it: the same for all, named after its content",
            examples=[f"https://mail.example/images/{'0' * 64}.png"],
        ),
    ]
    filename: str
    width: Annotated[int, Meta(description="Pixels", examples=[1200])]
    height: Annotated[int, Meta(description="Pixels", examples=[600])]
    size: Annotated[int, Meta(description="Bytes", examples=[48213])]
    content_type: Annotated[str, Meta(description="The media type", examples=["image/png"])]
    created_at: str


class ImagesPage(Struct, rename="camel"):
    """Images, newest first. `nextCursor` is null on the last page."""

    data: list[Image]
    next_cursor: str | None
