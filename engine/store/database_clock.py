"""The time by the database's clock: what due times are made and judged by, however wrong a host's own clock is.

Hosts agree on this one. It is asked once for a piece of work and carried on by the monotonic clock, which nobody sets.
"""

import time
from datetime import datetime, timedelta
from uuid import UUID

from engine.base import clock, ids
from engine.store.queries import Conn, Queries, Source

_READ = Queries.beside(__file__, "database_clock.sql").command("read_clock")


class DatabaseClock:
    """A clock that stood at `at` when it was made."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._since = time.monotonic()

    @classmethod
    async def read(cls, source: Source) -> "DatabaseClock":
        """Ask the database: one round trip."""
        return cls((await _READ.records(source))[0]["at"])

    def now(self) -> datetime:
        """The present, aware, UTC, in whole milliseconds."""
        return clock.whole_milliseconds(self._at + timedelta(seconds=time.monotonic() - self._since))


async def new_time(connection: Conn) -> datetime:
    """Return the time, to the microsecond, at which a row for a list is made.

    Lists show the newest first, and a client that knows a list's newest row must find every later one above it. So the
    caller holds the lock of the list's owner (an account's head, or a person) until its commit: whoever makes the next
    row reads this clock only then. Neither `now()`, which stands still from the start of the transaction, nor a host's
    clock gives that order.
    """
    at: datetime = (await _READ.records(connection))[0]["at"]
    return at


async def new_id(connection: Conn) -> UUID:
    """Return the id of a row for a list that is ordered by id; as `new_time`."""
    return ids.uuid7_at(await new_time(connection))
