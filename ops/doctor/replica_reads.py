"""Check the replicas that the API reads from: whether they follow this primary, and how closely. It only reads."""

import asyncio
import time
from typing import Final

from msgspec import Struct

from engine.base.settings import Settings, variable
from engine.store.database_errors import DatabaseError
from engine.store.postgres import DatabaseSession
from engine.store.postgres_hosts import Host, hosts_of
from engine.store.replica_pool import IDENTITY, ServerIdentity, difference, open_any
from engine.store.replicas import PRIMARY, REPLICA, PrimaryState
from ops.doctor.database import connect
from ops.doctor.finding import DoctorFinding, bad, describe_error, good

CHECK: Final = "replica reads"
TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.1


class _Seen(Struct, frozen=True):
    """A server of the URL: what was found, whether it can serve reads, and how to fix it if it never can."""

    found: str
    is_well: bool = False
    mend: str = ""


async def replica_reads(settings: Settings) -> list[DoctorFinding]:
    """Check that each replica belongs to the primary, is on its timeline, and lags less than allowed."""
    url = settings.database_read_url
    if url is None:
        return []
    primary = await connect(settings)
    try:
        own, state = await IDENTITY.first(primary), await PRIMARY.first(primary)
    finally:
        primary.terminate()
    assert own is not None
    assert state is not None
    hosts = hosts_of(url)
    seen = await asyncio.gather(*[_look(url, host, own, state, settings.read_lag_s) for host in hosts])
    found = ", ".join(f"{':'.join(host)} {one.found}" for host, one in zip(hosts, seen, strict=True))
    mends = [one.mend for one in seen if one.mend]
    if mends:
        return [bad(CHECK, found, mends[0])]
    if not any(one.is_well for one in seen):
        mend = "Until a replica follows closely, everything is read from the primary. Read the replica's log."
        return [bad(CHECK, found, mend)]
    return [good(CHECK, found)]


async def _look(url: str, host: Host, own: ServerIdentity, primary: PrimaryState, max_lag_s: float) -> _Seen:
    try:
        async with asyncio.timeout(TIMEOUT_S + max_lag_s):
            session = await open_any(url, host, timeout_s=TIMEOUT_S)
            try:
                return await _compared(session, own, primary, max_lag_s)
            finally:
                session.terminate()
    except (DatabaseError, TimeoutError) as error:
        mend = f"Start the server, or remove it from {variable('database_read_url')}."
        return _Seen(f"unavailable ({describe_error(error)})", mend=mend)


async def _compared(session: DatabaseSession, own: ServerIdentity, primary: PrimaryState, max_lag_s: float) -> _Seen:
    identity = await IDENTITY.first(session)
    assert identity is not None
    if not identity.reads_as(own):
        mend = "Name a streaming replica of this primary, with the same database and options."
        return _Seen(difference(identity, own), mend=mend)
    began = time.monotonic()
    while True:
        state = await REPLICA.first(session)
        assert state is not None
        waited_s = time.monotonic() - began
        if state.place is None:
            return _Seen("accepts writes") if identity == own else _Seen("accepts writes", mend=_REJOIN)
        if state.place >= primary.place:
            break
        if waited_s > max_lag_s:
            return _Seen(f"replica, more than {max_lag_s:g} s behind")
        await asyncio.sleep(POLL_S)
    if state.marked_at is None or primary.marked_at is None:  # no API has read from replicas yet
        return _Seen("replica, follows", is_well=True)
    if state.mark_timeline != primary.mark_timeline or state.marked_at < primary.marked_at:
        return _Seen("replica, follows another server", mend=_REJOIN)
    return _Seen(f"replica, less than {waited_s + POLL_S:.1f} s behind", is_well=True)


_REJOIN: Final = "Let it follow this primary (`pg_basebackup`, or `pg_rewind`), or remove it from the URL."
