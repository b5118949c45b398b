"""`/.well-known/waybill/keys`: the public keys of certificates as JWK set (RFC 7517), retired ones included.

Anybody may read it, from any origin. One query serves the readers of `KEPT_S` seconds.
"""

import asyncio
from typing import Any, Final

import asyncpg
import falcon.asgi
import msgspec

from api.http.static_files import StaticFile, serve
from engine.accounts.delivery_certificates import signing, store
from engine.accounts.delivery_certificates.types import KEYS_PATH
from engine.base import clock
from engine.base.secrets import Pepper
from engine.store.database_errors import DatabaseUnavailable

KEPT_S: Final = 5.0
MAX_AGE_S: Final = 300
_CACHE: Final = f"public, max-age={MAX_AGE_S}"


class KeySet:
    """The JWK set of the installation, as this process last read it; it still answers while the database is away."""

    def __init__(self, pool: asyncpg.Pool, pepper: Pepper) -> None:
        self._pool = pool
        self._pepper = pepper
        self._file: StaticFile | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer with the keys; the first request makes one, so that no reader keeps an empty set."""
        file = await self._current()
        serve(request, response, file, cache=_CACHE)
        response.set_header("Access-Control-Allow-Origin", "*")
        response.set_header("Cross-Origin-Resource-Policy", "cross-origin")

    on_head = on_get

    async def _current(self) -> StaticFile:
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._file is None or now - self._read_at >= KEPT_S:
                try:
                    await store.active_key(self._pool, self._pepper, clock.now())
                    keys = [signing.public_jwk(row) for row in await store.ALL_KEYS.fetch(self._pool)]
                except (DatabaseUnavailable, OSError):
                    if self._file is None:
                        raise
                else:
                    self._file = StaticFile.of(msgspec.json.encode({"keys": keys}), ".json")
                self._read_at = now
            return self._file


def add_routes(app: "falcon.asgi.App[Any, Any]", pool: asyncpg.Pool, pepper: Pepper) -> None:
    """Add the JWK set to the application."""
    app.add_route(KEYS_PATH, KeySet(pool, pepper))
