"""The time by the database's clock: what due times are made and judged by, however wrong a host's own clock is.

Hosts agree on this one. It is asked once for a piece of work and carried on by the monotonic clock, which nobody sets.
"""

import time
from datetime import datetime, timedelta

from engine.base import clock
from engine.store.queries import Queries, Source

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
