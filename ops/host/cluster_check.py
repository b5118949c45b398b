"""Checks that a host fits its installation, made before the host starts any process.

With another pepper, every API key would be invalid on this host only. With another number of shards, mail would be
queued in shards without an owner. Both are compared with the values that the first host wrote into the database. Two
hosts with one name would each take the other's mta processes for its own dead ones.
"""

import asyncio
import time
from datetime import datetime
from typing import Final

import asyncpg
from msgspec import Struct

from engine.base.process_names import process_name
from engine.base.secrets import Pepper
from engine.base.settings import Settings, variable
from engine.store.postgres import connect
from engine.store.queries import Queries

_SQL = Queries.beside(__file__, "cluster_check.sql")
_POLL_S: Final = 0.25
_RENEWED_WITHIN: Final = 0.6  # of a lease; a member renews it after each third


class ClusterMismatch(RuntimeError):  # noqa: N818 - named for what it says
    """Raised when this host's settings differ from the installation's; the text says what to set."""


class InstallationRow(Struct, frozen=True):
    """The installation's row: its settings, and whether stored data depends on them."""

    shards: int
    pepper_print: bytes
    previous_print: bytes | None
    peppered: bool
    sharded: bool


class NamesakeRow(Struct, frozen=True):
    """A member with a valid lease and the name of one of this host's mta processes."""

    name: str
    expires_at: datetime


_INSERT = _SQL.command("insert_installation")
_READ = _SQL.rows("read_installation", InstallationRow)
_ADOPT = _SQL.command("adopt_installation")
_NAMESAKES = _SQL.rows("namesakes", NamesakeRow)


async def agree(settings: Settings) -> list[str]:
    """Compare this host with the installation and return messages for the operator; raises ClusterMismatch.

    Adopts this host's values where no stored data depends on the old ones. After a crash it waits for up to one lease:
    only a renewed lease tells a running namesake from this host's own dead processes.
    """
    assert settings.database_url is not None
    connection = await connect(settings.database_url, name="cluster_check", timeout_s=30)
    try:
        await _INSERT.execute(connection, settings.shards, settings.pepper.fingerprint)
        (known,) = await _READ.fetch(connection)
        messages = []
        print_, changed = _agreed_pepper(settings.pepper, known)
        if changed is not None:
            messages.append(changed)
        messages += _compare_shards(settings, known)
        if messages:
            await _ADOPT.execute(connection, settings.shards, print_)
        if "mta" in settings.processes:
            await _refuse_namesakes(connection, settings)
    finally:
        await connection.close()
    return messages


async def adopt(settings: Settings) -> None:
    """Make this host's number of shards and pepper the installation's, even if stored data depends on the old ones."""
    assert settings.database_url is not None
    connection = await connect(settings.database_url, name="cluster_check", timeout_s=30)
    try:
        await _INSERT.execute(connection, settings.shards, settings.pepper.fingerprint)
        await _ADOPT.execute(connection, settings.shards, settings.pepper.fingerprint)
    finally:
        await connection.close()


def _agreed_pepper(pepper: Pepper, known: InstallationRow) -> tuple[bytes, str | None]:
    """Return the fingerprint of the installation's pepper from now on, and a message if it is another than before.

    A host that knows two peppers may start before or after the change. The first one whose present pepper follows the
    installation's makes the change; one that still has the installation's pepper as its previous one, because it was
    not yet configured anew, undoes nothing. Raises ClusterMismatch.
    """
    own, before = pepper.fingerprint, None if pepper.previous is None else pepper.previous.fingerprint
    if known.pepper_print == own:
        return own, None
    if known.pepper_print == before:
        if known.previous_print == own:
            return known.pepper_print, None
        return own, "The installation now uses this host's key pepper, and accepts what was made under the previous one"
    if known.peppered:
        raise ClusterMismatch(
            f"The key pepper of this host is not the one that the keys in this database were made with, so no key"
            f" would work here. Set {variable('key_pepper')} to the pepper of the other hosts (on the first host it"
            f" is in the file `pepper` of {variable('state')}). To change the pepper, set the old one as"
            f" {variable('key_pepper_previous')} too. If it is lost, run `ops adopt` and create new keys."
        )
    return own, "The installation now uses this host's key pepper; no key or session depends on another one"


def _compare_shards(settings: Settings, known: InstallationRow) -> list[str]:
    messages = []
    if known.shards != settings.shards:
        if known.sharded:
            raise ClusterMismatch(
                f"{variable('shards')} is {settings.shards} on this host, and this installation runs with"
                f" {known.shards}: mail would be queued in shards without an owner. Set {known.shards} here. To change"
                f" the number, run all hosts with {variable('processes')}=mta,worker until the queue is empty, stop"
                " them all, and start them with the new number."
            )
        messages.append(f"The installation now has {settings.shards} shards ({known.shards} before)")
    return messages


async def _refuse_namesakes(connection: asyncpg.Connection, settings: Settings) -> None:
    """Raise ClusterMismatch if another host renews a lease under the name of one of our mta processes.

    Our own processes are dead at this point, because this process holds the lock of the state folder.
    """
    ours = [process_name(settings.state, f"mta-{number}") for number in range(1, settings.mta_workers + 1)]
    first = {one.name: one.expires_at for one in await _NAMESAKES.fetch(connection, ours)}
    ends = time.monotonic() + settings.lease_s * _RENEWED_WITHIN
    while first and time.monotonic() < ends:
        await asyncio.sleep(_POLL_S)
        now = {one.name: one.expires_at for one in await _NAMESAKES.fetch(connection, ours)}
        renewed = [name for name, end in now.items() if name in first and end > first[name]]
        if renewed:
            raise ClusterMismatch(
                f"Another host runs {renewed[0]} against this database. Give each host a host name, or a"
                f" {variable('state')}, of its own."
            )
        first = {name: end for name, end in first.items() if name in now}
