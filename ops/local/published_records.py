"""Read the DNS records of customers' domains from the database, for the local DNS responder."""

import asyncio
import sys
from collections import OrderedDict
from typing import Any, Final

import asyncpg

from engine.base import settings
from engine.base.secrets import DerivedKey
from engine.sending.domains.local import published
from engine.sending.domains.types import MailHostIdentity
from engine.store import postgres
from engine.store.database_errors import DatabaseError

_CACHED: Final = 100_000
_PUBLISHED_S: Final = 1.0
_DATABASE_S: Final = 2.0  # shorter than the 3 s that the service's resolver waits for an answer


class RecordsUnavailable(RuntimeError):  # noqa: N818 - named for what happened
    """The database doesn't answer, so that records of customers' domains are not known."""


class Published:
    """Reads the DNS records that customers' domains need, through `engine.sending.domains.local.published`.

    Records are cached for 1 s. While the database is unavailable, TXT look-ups raise RecordsUnavailable, because an
    empty answer would make signed mail look unsigned; other types have no records.
    """

    def __init__(self, database_url: str | None, identity: MailHostIdentity | None = None) -> None:
        self._url = database_url
        self._identity = identity or MailHostIdentity(settings.Settings().mail_host, DerivedKey())
        self._connection: asyncpg.Connection[Any] | None = None
        self._lock = asyncio.Lock()
        self._cache: OrderedDict[tuple[str, str], tuple[float, list[str]]] = OrderedDict()
        self._retry_at = 0.0

    async def __call__(self, name: str, rdtype: str) -> list[str]:
        """Return the records of one name and type in zone file form, [] if there are none."""
        at = asyncio.get_running_loop().time()
        known = self._cache.get((name, rdtype))
        if known is not None and known[0] > at:
            return known[1]
        if self._url is None:
            return []
        values = None if at < self._retry_at else await self._read(name, rdtype)
        if values is None and rdtype == "TXT":
            raise RecordsUnavailable(name)
        if values is None:
            return []
        self._cache[name, rdtype] = (at + _PUBLISHED_S, values)
        self._cache.move_to_end((name, rdtype))
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        return values

    async def close(self) -> None:
        """Close the database connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _read(self, name: str, rdtype: str) -> list[str] | None:
        assert self._url is not None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_DATABASE_S), self._lock:
                known = self._cache.get((name, rdtype))
                if known is not None and known[0] > loop.time():  # read while this look-up waited
                    return known[1]
                # One look-up has just failed: those that waited for it would each open a session with no time left.
                if loop.time() < self._retry_at:
                    return None
                if self._connection is None or self._connection.is_closed():
                    self._connection = await postgres.connect(self._url, name="dns", timeout_s=_DATABASE_S)
                return await published(self._connection, self._identity, name, rdtype)
        except (DatabaseError, OSError) as error:
            print(f"dns: the database does not answer: {str(error) or type(error).__name__}", file=sys.stderr)
            await self.close()
            self._retry_at = loop.time() + _PUBLISHED_S
            return None
