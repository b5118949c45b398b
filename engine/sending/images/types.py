"""Define uploaded images and their limits."""

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base import ids

MAX_UPLOAD_BYTES: Final = 5_000_000
MAX_UPLOAD_BASE64: Final = 4 * -(-MAX_UPLOAD_BYTES // 3) + MAX_UPLOAD_BYTES // 50  # with line breaks
MAX_PIXELS: Final = 40_000_000
MAX_SIDE: Final = 1_440  # pixels of a stored image: twice the widest content, for dense screens
MAX_IMAGES: Final = 1_000  # of an account
MAX_ACCOUNT_BYTES: Final = 200 * 1024 * 1024  # of an account's images together
MAX_CARRIED_BYTES: Final = 10_000_000  # of the images in one message; receivers take 20 to 25 MB in base64
MAX_FILE_NAME: Final = 200
EXTENSIONS: Final = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
PATH: Final = "/images/"


class EncodedImage(Struct, frozen=True):
    """An image after decoding and encoding, without metadata."""

    content: bytes
    content_type: str
    width: int
    height: int


class ImageRow(Struct, frozen=True):
    """An image of an account, without its bytes."""

    id: UUID
    sha256: bytes
    filename: str
    content_type: str
    width: int
    height: int
    size_bytes: int
    created_at: datetime

    @property
    def public_id(self) -> str:
        """Return the id that clients see."""
        return ids.format_id(ids.Kind.IMAGE, self.id)

    def url(self, public_url: str) -> str:
        """Return the address at which anybody reads the image; it changes with the content."""
        return f"{public_url.rstrip('/')}{PATH}{self.sha256.hex()}.{EXTENSIONS[self.content_type]}"


class ImageContent(Struct, frozen=True):
    """An image with its bytes, to go into messages."""

    id: UUID
    filename: str
    content_type: str
    content: bytes


class ServedImage(Struct, frozen=True):
    """An image as it is served."""

    content_type: str
    content: bytes


class ImageUse(Struct, frozen=True):
    """A template or a broadcast that shows an image."""

    kind: str
    id: str


class ImageTotals(Struct, frozen=True):
    """How many images an account has, and their bytes."""

    images: int
    total_bytes: int
