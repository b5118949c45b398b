"""Checks that a host fits its installation, made before the host starts any process.

With another pepper, every API key would be invalid on this host only. With another number of shards, mail would be
queued in shards without an owner. Both are compared with the values that the first host wrote into the database. Two
hosts with one name would each take the other's mta processes for its own dead ones.
"""

import asyncio
import hmac
import time
from datetime import datetime
from hashlib import sha256
from typing import Final

import asyncpg
from msgspec import Struct

from engine.base.settings import Settings, variable
from engine.store.postgres import connect
from engine.store.queries import Queries
from mta.process import process_name

_SQL = Queries.beside(__file__, "cluster_check.sql")
_DIGEST_LABEL: Final = b"waybill installation"
_POLL_S: Final = 0.25
_RENEWED_WITHIN: Final = 0.6  # of a lease; a member renews it after each third


class ClusterMismatch(RuntimeError):  # noqa: N818 - named for what it says
    """Raised when this host's settings differ from the installation's; the text says what to set."""


class InstallationRow(Struct, frozen=True):
    """The installation's row: its settings, and whether stored data depends on them."""

    shards: int
    pepper_print: bytes
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
        print_ = pepper_print(settings)
        await _INSERT.execute(connection, settings.shards, print_)
        (known,) = await _READ.fetch(connection)
        messages = _compare(settings, known, print_)
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
        await _INSERT.execute(connection, settings.shards, pepper_print(settings))
        await _ADOPT.execute(connection, settings.shards, pepper_print(settings))
    finally:
        await connection.close()


def pepper_print(settings: Settings) -> bytes:
    """Return a fingerprint of the pepper (16 octets) that does not reveal it."""
    assert settings.key_pepper is not None
    return hmac.digest(settings.key_pepper.encode(), _DIGEST_LABEL, sha256)[:16]


def _compare(settings: Settings, known: InstallationRow, print_: bytes) -> list[str]:
    messages = []
    if known.pepper_print != print_:
        if known.peppered:
            raise ClusterMismatch(
                f"The key pepper of this host is not the one that the keys in this database were made with, so no key"
                f" would work here. Set {variable('key_pepper')} to the pepper of the other hosts (on the first host it"
                f" is in the file `pepper` of {variable('state')}). If it is lost, run `ops adopt` and create new keys."
            )
        messages.append("The installation now uses this host's key pepper; no key or session depends on another one")
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
    ours = [process_name(settings, f"mta-{number}") for number in range(1, settings.mta_workers + 1)]
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
