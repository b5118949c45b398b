"""Accept images by their bytes and encode them anew, so that nothing but the picture is kept. Run it in a thread.

The pixels that the header declares are counted before any of them is decoded: a PNG of 47 KB can declare 400
megapixels. The formats are those that mail clients show.
"""

import io
from typing import Final

from PIL import Image, ImageOps, UnidentifiedImageError

from engine.base.errors import Refusal, invalid
from engine.mail.attachments import BadContent, decode_content
from engine.sending.images.types import MAX_PIXELS, MAX_SIDE, MAX_UPLOAD_BYTES, EncodedImage

_FORMATS: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_MAX_FRAMES: Final = 200
_SCALABLE: Final = frozenset({"RGB", "RGBA", "L", "LA", "CMYK"})
_OPTIONS: Final[dict[str, dict[str, int | bool]]] = {
    "PNG": {"optimize": True},
    "JPEG": {"quality": 88, "optimize": True, "progressive": True},
    "GIF": {"optimize": True},
    "WEBP": {"quality": 88, "method": 4},
}
_FIELD: Final = "content"


def read_image(text: str) -> EncodedImage:
    """Return the image in base64 `text`, encoded anew in its format; raise the 400 for anything else."""
    try:
        content = decode_content(text)
    except BadContent:
        raise invalid(_FIELD, "`content` must be standard base64 (RFC 4648, section 4).") from None
    if len(content) > MAX_UPLOAD_BYTES:
        raise invalid(
            _FIELD,
            f"The image has {len(content):,} bytes; the limit is {MAX_UPLOAD_BYTES:,}. Save it smaller.",
        )
    try:
        with Image.open(io.BytesIO(content), formats=tuple(_FORMATS)) as image:
            _check(image)
            return _encoded(image)
    except Refusal:
        raise
    except Image.DecompressionBombError:  # Pillow's own limit, which lies above ours
        raise invalid(
            _FIELD, f"The image declares far more than {MAX_PIXELS:,} pixels, the limit. Scale it down."
        ) from None
    except UnidentifiedImageError:
        raise invalid(_FIELD, "The file is not a PNG, JPEG, GIF or WebP image.") from None
    # Pillow raises errors of many kinds for damaged images: OSError, SyntaxError, ValueError, struct.error, EOFError.
    except Exception as error:  # noqa: BLE001
        raise invalid(
            _FIELD, f"The image can't be decoded ({type(error).__name__}). Open it in an editor and save it again."
        ) from None


def _check(image: Image.Image) -> None:
    width, height = image.size
    frames = getattr(image, "n_frames", 1)
    if width * height > MAX_PIXELS or min(image.size) < 1:
        raise invalid(
            _FIELD,
            f"The image has {width:,} × {height:,} pixels; the limit is {MAX_PIXELS:,} in all. Scale it down.",
        )
    if frames > _MAX_FRAMES or frames * width * height > MAX_PIXELS:
        raise invalid(
            _FIELD,
            f"The animation has {frames} frames of {width} × {height} pixels; at most {_MAX_FRAMES} frames and "
            f"{MAX_PIXELS:,} pixels in all are allowed. Make it shorter or smaller.",
        )


def _encoded(image: Image.Image) -> EncodedImage:
    kind = str(image.format)
    if kind in {"GIF", "WEBP"} and getattr(image, "n_frames", 1) > 1:
        return _animation(image, kind)
    mode = "RGB" if kind == "JPEG" else "RGBA"
    # Scaled before anything copies it: a JPEG is then decoded at a fraction of its size. Palettes can't be scaled.
    small = image if image.mode in _SCALABLE else image.convert(mode)
    small.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
    picture = ImageOps.exif_transpose(small).convert(mode)  # the metadata that says how to turn it is dropped
    if kind != "JPEG" and picture.getchannel("A").getextrema() == (255, 255):
        picture = picture.convert("RGB")
    fresh = Image.new(picture.mode, picture.size)  # without metadata
    fresh.paste(picture)
    out = io.BytesIO()
    fresh.save(out, kind, **_OPTIONS[kind])
    return EncodedImage(out.getvalue(), _FORMATS[kind], *fresh.size)


def _animation(image: Image.Image, kind: str) -> EncodedImage:
    frames: list[Image.Image] = []
    durations: list[int] = []
    for number in range(getattr(image, "n_frames", 1)):
        image.seek(number)
        frame = image.convert("RGBA")
        frame.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
        frames.append(frame)
        durations.append(int(image.info.get("duration", 100)))
    out = io.BytesIO()
    frames[0].save(
        out, kind, save_all=True, append_images=frames[1:], duration=durations, loop=int(image.info.get("loop", 0)),
        **({"disposal": 2} if kind == "GIF" else _OPTIONS[kind]),
    )  # fmt: skip
    return EncodedImage(out.getvalue(), _FORMATS[kind], *frames[0].size)
