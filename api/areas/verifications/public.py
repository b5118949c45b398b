"""Serve the logos of the mail with codes, which anybody may read who knows their URL."""

from typing import Final

import asyncpg
import falcon
import falcon.asgi

from api.http.static_files import FOREVER
from engine.codes.verifications import store

POLICY: Final = "default-src 'none'; sandbox"


class LogoFile:
    """`GET /verification-logos/{token}`."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:  # noqa: ARG002
        """Answer with the picture; its URL changes with its content."""
        row = await store.READ_LOGO.first(self._pool, token) if token.isascii() and token.isalnum() else None
        if row is None:
            raise falcon.HTTPNotFound(description="There is no such logo.")
        response.data = row.content
        response.content_type = row.content_type
        response.set_header("Content-Security-Policy", POLICY)
        response.set_header("X-Content-Type-Options", "nosniff")
        response.set_header("Cross-Origin-Resource-Policy", "cross-origin")
        response.set_header("Cache-Control", FOREVER)

    on_head = on_get
