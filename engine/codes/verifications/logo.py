"""Accept logos by their bytes and encode them anew, so that nothing but the picture is served. Run it in a thread.

The header's dimensions are checked before any pixel is decoded: a PNG of 47 KB can declare 400 megapixels.
"""

import binascii
import io
from base64 import b64decode
from typing import Final

from msgspec import Struct
from PIL import Image, ImageOps, UnidentifiedImageError

from engine.base.errors import Refusal, invalid

MAX_BYTES: Final = 512 * 1024
MAX_BASE64: Final = 4 * -(-MAX_BYTES // 3)
MAX_SIDE: Final = 2_000  # pixels
STORED_WIDTH: Final = 600  # larger ones are scaled down: mails show a third of it
FORMATS: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


class Logo(Struct, frozen=True):
    """A logo as it is stored and served."""

    content: bytes
    content_type: str
    width: int
    height: int


def read_logo(text: str) -> Logo:
    """Return the logo in base64 `text`, encoded anew in its format; raise the 400 for anything else."""
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("logo", "`logo.content` must be standard base64 (RFC 4648, section 4).") from None
    if len(content) > MAX_BYTES:
        raise invalid("logo", f"The logo has {len(content)} bytes; the limit is {MAX_BYTES}. Remove some.")
    try:
        with Image.open(io.BytesIO(content), formats=tuple(FORMATS)) as image:
            _check(image)
            return _encoded(image)
    except Refusal:
        raise
    except UnidentifiedImageError:
        raise invalid("logo", "The logo isn't a PNG, JPEG or WebP image. Convert it.") from None
    # Pillow raises errors of many kinds for damaged images: OSError, SyntaxError, ValueError, struct.error, EOFError.
    except Exception as error:  # noqa: BLE001
        raise invalid("logo", f"The logo can't be decoded ({type(error).__name__}). Export it again.") from None


def _check(image: Image.Image) -> None:
    if max(image.size) > MAX_SIDE or min(image.size) < 1:
        width, height = image.size
        raise invalid("logo", f"The logo has {width} × {height} pixels; the limit is {MAX_SIDE} per side.")
    if getattr(image, "n_frames", 1) != 1:
        raise invalid("logo", "The logo is animated. Send a single frame.")


def _encoded(image: Image.Image) -> Logo:
    kind = str(image.format)
    upright = ImageOps.exif_transpose(image)  # the metadata that says how to turn it is dropped
    picture = upright.convert("RGB" if kind == "JPEG" else "RGBA")
    picture.thumbnail((STORED_WIDTH, MAX_SIDE))
    out = io.BytesIO()
    fresh = Image.new(picture.mode, picture.size)  # without metadata
    fresh.paste(picture)
    fresh.save(out, kind, **({"quality": 90} if kind != "PNG" else {"optimize": True}))
    return Logo(out.getvalue(), FORMATS[kind], *fresh.size)
