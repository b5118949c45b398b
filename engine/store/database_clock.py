"""Read the time of the database server, by which due times are set and compared, so that a wrong host clock does no
harm.

A task reads it once and continues with the monotonic clock, which is never set: that of service time, which the
database has too.
"""

from datetime import datetime, timedelta
from uuid import UUID

from engine.base import clock, ids
from engine.store.queries import Conn, Queries, Source

_READ = Queries.beside(__file__, "database_clock.sql").command("read_clock")


class DatabaseClock:
    """A clock that starts at `at`, the time of the database server; lives as long as one task."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._since = clock.monotonic()

    @classmethod
    async def read(cls, source: Source) -> "DatabaseClock":
        """Read the time from the database: one round trip."""
        return cls((await _READ.records(source))[0]["at"])

    def now(self) -> datetime:
        """Return the current time: aware, UTC, in whole milliseconds."""
        return clock.whole_milliseconds(self._at + timedelta(seconds=clock.monotonic() - self._since))


async def new_time(connection: Conn) -> datetime:
    """Return the creation time, to the microsecond, of a row that a list shows.

    Lists show the newest row first, and a client that knows the newest row must find every later one before it. So the
    caller holds the lock of the list's owner (an account head, or a person) until its commit, and the next transaction
    reads this clock only then. Neither `now()`, which is constant in a transaction, nor a host's clock gives that
    order.
    """
    at: datetime = (await _READ.records(connection))[0]["at"]
    return at


async def new_id(connection: Conn) -> UUID:
    """Return the id of a row for a list that is ordered by id; the caller holds the lock as for `new_time`."""
    return ids.uuid7_at(await new_time(connection))
