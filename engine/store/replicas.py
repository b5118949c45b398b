"""Choose a replica for reads that may lag, and know how much each replica of `WAYBILL_DATABASE_READ_URL` lags.

Every half second a process notes how far the primary has written its log, and asks each replica how far it shows that
log. A replica that has reached a note shows everything that was committed before the note was made, on the clock of
this process; a primary without changes does not make it look late. A server of another timeline, or a copy of the
database, may have reached the same place with other changes: a replica must also show the mark that these processes
write to the primary every few seconds.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import asyncpg
import structlog
from msgspec import Struct

from engine.base.settings import Settings
from engine.store import metrics
from engine.store.database_errors import DatabaseError
from engine.store.postgres import DatabaseSession, SessionPool
from engine.store.postgres_hosts import Host, hosts_of
from engine.store.queries import Queries
from engine.store.replica_pool import (
    IDENTITY,
    LaggingSource,
    NotAReplica,
    difference,
    open_replica_pool,
    open_session,
)

PROBE_S: Final = 0.5
PROBE_TIMEOUT_S: Final = 2.0  # a replica that hangs ends the reads on it after this, long before their own time limit
RETRY_S: Final = 2.0  # between attempts to reach a replica
STEADY_PROBES: Final = 4  # with at most half of the allowed lag, before a replica gets reads again
MARK_S: Final = 10.0  # age of the mark after which the next process writes it
START_S: Final = 5.0  # in which a process that has just started does not report replicas that are not ready
_MAX_NOTES: Final = 256  # of about two minutes

_SQL = Queries.beside(__file__, "replicas.sql")

_log = structlog.get_logger("replica")


class PrimaryState(Struct, frozen=True):
    """How far the primary has written its log, and the mark in the table `replica_marks`."""

    place: int
    timeline: int
    mark_timeline: int | None
    marked_at: datetime | None
    mark_age_s: float | None


class ReplicaState(Struct, frozen=True):
    """How far a replica shows the primary's log, and the mark as it shows it."""

    place: int | None
    mark_timeline: int | None
    marked_at: datetime | None


class Note(Struct, frozen=True):
    """A place in the log that includes everything committed before `at`, a monotonic time."""

    at: float
    place: int
    timeline: int
    marked_at: datetime

    def is_shown_by(self, state: ReplicaState) -> bool:
        """Return True if a replica in this state shows everything committed before the note."""
        return (
            state.place is not None
            and state.place >= self.place
            and state.mark_timeline == self.timeline
            and state.marked_at is not None
            and state.marked_at >= self.marked_at
        )


PRIMARY = _SQL.rows("primary_state", PrimaryState)
_MARK = _SQL.command("mark_primary")
REPLICA = _SQL.rows("replica_state", ReplicaState)


class PrimaryNotes:
    """The places in the primary's log that this process has noted, on the primary's present timeline."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=_MAX_NOTES)
        self._timeline = 0

    async def take(self, primary: asyncpg.Pool) -> None:
        """Note the present place, after writing a new mark if the last one is old or of another timeline.

        The first one of a process is always written: a copy of the database may have the last one too.
        """
        at = time.monotonic()
        state = await PRIMARY.first(primary)
        assert state is not None
        if state.timeline != self._timeline or state.mark_age_s is None or state.mark_age_s > MARK_S:
            await _MARK.execute(primary, state.timeline)
            at = time.monotonic()
            state = await PRIMARY.first(primary)
            assert state is not None
        self.add(at, state)

    def add(self, at: float, state: PrimaryState) -> None:
        """Note the state that the primary was asked for at `at`, unless its mark is of another timeline."""
        if state.timeline != self._timeline:
            self._timeline = state.timeline
            self._notes.clear()
        if state.marked_at is not None and state.mark_timeline == state.timeline:
            self._notes.append(Note(at, state.place, state.timeline, state.marked_at))

    def shown_until(self, state: ReplicaState) -> float:
        """Return the time up to which a replica in this state shows every commit; -inf if that is unknown."""
        return next((note.at for note in reversed(self._notes) if note.is_shown_by(state)), -math.inf)


class Replica:
    """A replica as this process sees it; `pool` is open while it may get reads."""

    def __init__(self, database_url: str, host: Host, primary: asyncpg.Pool, max_lag_s: float) -> None:
        self.name = ":".join(host)
        self.pool: SessionPool | None = None
        self._shown_until = -math.inf
        self._newest = -math.inf  # of all servers that the name led to, for the metric
        self._url = database_url
        self._host = host
        self._primary = primary
        self._max_lag_s = max_lag_s
        self._session: DatabaseSession | None = None
        self._steady = 0
        self._retry_at = 0.0
        self._problem = ""
        self._reports_from = time.monotonic() + START_S

    def lag_s(self, now: float) -> float:
        """Return the age of the newest data that the replica is known to show."""
        return now - self._shown_until

    def shows(self, since: float, now: float) -> bool:
        """Return True if it may get a read of a caller whose last write was at `since`, both monotonic times."""
        return self.pool is not None and since <= self._shown_until and self.lag_s(now) <= self._max_lag_s

    async def probe(self, notes: PrimaryNotes) -> None:
        """Ask the replica how far it is; close its pool if it does not answer, and open it when it is well."""
        if self._session is None and time.monotonic() < self._retry_at:
            return
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                state = await self._state()
                self._shown_until = max(self._shown_until, notes.shown_until(state))
                lag_s = self.lag_s(time.monotonic())
                self._steady = self._steady + 1 if lag_s <= self._max_lag_s / 2 else 0
                await self._judge(lag_s)
        except (DatabaseError, TimeoutError) as error:
            self.close()
            self._retry_at = time.monotonic() + RETRY_S
            self._say(str(error) or "no answer")
        self._newest = max(self._newest, self._shown_until)
        if self._newest > -math.inf:
            metrics.REPLICA_LAG.labels(self.name).set(time.monotonic() - self._newest)

    async def _state(self) -> ReplicaState:
        if self._session is None:
            self._session = await open_session(self._url, self._host, timeout_s=PROBE_TIMEOUT_S)
            # The name may lead to another server now, and one that crashed may show less than before.
            self._shown_until = -math.inf
        state = await REPLICA.first(self._session)
        assert state is not None
        if state.place is None:
            raise NotAReplica(f"{self.name} accepts writes: it is no replica")
        return state

    async def _judge(self, lag_s: float) -> None:
        if lag_s > self._max_lag_s:
            # The sessions may be on a server of another timeline, or need not be kept for one that stays behind.
            self._close_pool()
            self._say("it lags" if lag_s < math.inf else "it does not follow this primary")
        elif self.pool is None and self._steady >= STEADY_PROBES:
            await self._open()

    async def _open(self) -> None:
        """Open the pool, unless the URL leads to other tables than those of the primary."""
        assert self._session is not None
        server, own = await IDENTITY.first(self._session), await IDENTITY.first(self._primary)
        assert server is not None
        assert own is not None
        if server.reads_as(own):
            self.pool = await open_replica_pool(self._url, self._host, server)
            self._say("")
        else:
            self._steady = 0
            self._say(difference(server, own))

    def _say(self, problem: str) -> None:
        """Log a change of the replica's state once."""
        if problem and (problem == self._problem or time.monotonic() < self._reports_from):
            return
        self._problem = problem
        if problem:
            _log.warning("replica gets no reads", replica=self.name, reason=problem)
        else:
            _log.info("replica gets reads", replica=self.name)

    def close(self) -> None:
        """End all sessions; statements that run on them are repeated on the primary."""
        self._close_pool()
        self._steady = 0
        session, self._session = self._session, None
        if session is not None:
            session.terminate()

    def _close_pool(self) -> None:
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.terminate()


class Replicas:
    """The replicas of one URL; `run` keeps their states."""

    def __init__(self, database_url: str, primary: asyncpg.Pool, max_lag_s: float) -> None:
        self._primary = primary
        self._notes = PrimaryNotes()
        self._all: Sequence[Replica] = [
            Replica(database_url, host, primary, max_lag_s) for host in hosts_of(database_url)
        ]
        self._turn = 0

    @classmethod
    def from_settings(cls, settings: Settings, primary: asyncpg.Pool) -> "Replicas | None":
        """Return the replicas of the settings; None if they name none."""
        url = settings.database_read_url
        return None if url is None else cls(url, primary, settings.read_lag_s)

    def choose(self, since: float) -> LaggingSource | None:
        """Return a source on a replica that shows everything committed before `since`, in turn; None if none does."""
        now = time.monotonic()
        able = [one.pool for one in self._all if one.pool is not None and one.shows(since, now)]
        self._turn += 1
        return LaggingSource(able[self._turn % len(able)], self._primary) if able else None

    @property
    def any_able(self) -> bool:
        """Return True if a caller that has not written lately can read from a replica."""
        now = time.monotonic()
        return any(one.shows(-math.inf, now) for one in self._all)

    async def run(self) -> None:
        """Probe the primary and all replicas until cancelled."""
        try:
            while True:
                await self._note_primary()
                await asyncio.gather(*[one.probe(self._notes) for one in self._all])
                await asyncio.sleep(PROBE_S)
        finally:
            for one in self._all:
                one.close()

    async def _note_primary(self) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._notes.take(self._primary)
        except (DatabaseError, TimeoutError) as error:
            _log.debug("place of the primary not noted", error=repr(error))
