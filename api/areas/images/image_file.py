"""Serve images to the readers of emails: public, without cookies, the same for every reader.

The address is the digest of the content, so nobody finds an image without having it, and nothing tells one reader from
another. Reads are not logged.
"""

import re
from typing import Final

import asyncpg
import falcon
import falcon.asgi

from api.http.static_files import FOREVER
from engine.sending.images import store
from engine.sending.images.types import EXTENSIONS

_POLICY: Final = "default-src 'none'; sandbox"
_name = re.compile(r"([0-9a-f]{64})\.([a-z]{3,4})").fullmatch


class ImageFile:
    """`GET /images/{sha256}.{extension}`."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response, name: str) -> None:  # noqa: ARG002
        """Answer with the image, which never changes under this address."""
        found = _name(name)
        row = None if found is None else await store.SERVE.first(self._pool, bytes.fromhex(found[1]))
        if found is None or row is None or EXTENSIONS.get(row.content_type) != found[2]:
            raise falcon.HTTPNotFound(description="There is no such image.")
        response.data = row.content
        response.content_type = row.content_type
        response.set_header("Content-Security-Policy", _POLICY)
        response.set_header("X-Content-Type-Options", "nosniff")
        response.set_header("Cross-Origin-Resource-Policy", "cross-origin")
        response.set_header("Cache-Control", FOREVER)

    on_head = on_get
