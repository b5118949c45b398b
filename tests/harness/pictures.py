"""Images for tests, in base64 as clients upload them."""

import base64
import io
import struct
import zlib

from PIL import Image

from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api


def picture(kind: str = "PNG", size: tuple[int, int] = (40, 20), color: str = "#2450d8", **options: object) -> str:
    """An image of one color."""
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, kind, **options)
    return base64.b64encode(out.getvalue()).decode()


def bomb(side: int = 20_000) -> str:
    """A PNG of some hundred bytes that declares `side` × `side` pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    octets = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10_000))) + chunk(b"IEND", b"")
    )
    return base64.b64encode(octets).decode()


async def upload(api: Api, account: TestAccount, content: str, filename: str = "lamp.png") -> Answer:
    """Upload an image."""
    return await api.post("/v1/images", account.token, {"filename": filename, "content": content})


async def image_of(api: Api, account: TestAccount, color: str = "#2450d8") -> str:
    """The id of a new image of this color."""
    answer = await upload(api, account, picture(color=color))
    assert answer.status == 201, answer
    return str(answer.json["id"])
