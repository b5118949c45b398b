"""What all hosts of an installation must agree on, checked before a host starts any of its processes.

A different pepper would make every API key wrong on this host only; a different number of shards would queue mail
under shards that nobody owns. Both are compared with what the first host wrote into the database. Two hosts by one
name would take each other's mta processes for dead predecessors of their own.
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
_WHAT: Final = b"waybill installation"
_POLL_S: Final = 0.25
_RENEWED_WITHIN: Final = 0.6  # of a lease: it is renewed every third of one


class ClusterMismatch(RuntimeError):  # noqa: N818 - named for what it says
    """This host must not run beside the others; the text says what to set."""


class InstallationRow(Struct, frozen=True):
    """The row."""

    shards: int
    pepper_print: bytes
    peppered: bool
    sharded: bool


class NamesakeRow(Struct, frozen=True):
    """A living member by a name of ours."""

    name: str
    expires_at: datetime


_FOUND = _SQL.command("found_installation")
_READ = _SQL.rows("read_installation", InstallationRow)
_ADOPT = _SQL.command("adopt_installation")
_NAMESAKES = _SQL.rows("namesakes", NamesakeRow)


async def agree(settings: Settings) -> list[str]:
    """Compare, and write down what nothing depends on yet; returns sentences to tell. Raises ClusterMismatch.

    After a crash it waits for up to a lease: only time tells a dead predecessor from a living namesake.
    """
    assert settings.database_url is not None
    connection = await connect(settings.database_url, name="cluster_check", timeout_s=30)
    try:
        print_ = pepper_print(settings)
        await _FOUND.execute(connection, settings.shards, print_)
        (known,) = await _READ.fetch(connection)
        told = _compare(settings, known, print_)
        if told:
            await _ADOPT.execute(connection, settings.shards, print_)
        if "mta" in settings.processes:
            await _refuse_namesakes(connection, settings)
    finally:
        await connection.close()
    return told


async def adopt(settings: Settings) -> None:
    """Take this host's number of shards and pepper for those of the installation, whatever depends on the old."""
    assert settings.database_url is not None
    connection = await connect(settings.database_url, name="cluster_check", timeout_s=30)
    try:
        await _FOUND.execute(connection, settings.shards, pepper_print(settings))
        await _ADOPT.execute(connection, settings.shards, pepper_print(settings))
    finally:
        await connection.close()


def pepper_print(settings: Settings) -> bytes:
    """Sixteen octets that tell this pepper from another."""
    assert settings.key_pepper is not None
    return hmac.digest(settings.key_pepper.encode(), _WHAT, sha256)[:16]


def _compare(settings: Settings, known: InstallationRow, print_: bytes) -> list[str]:
    told = []
    if known.pepper_print != print_:
        if known.peppered:
            raise ClusterMismatch(
                f"The key pepper of this host is not the one that the keys in this database were made under, so none"
                f" would be good here. Set {variable('key_pepper')} to that of the other hosts (on the first it is in"
                f" the file pepper of its {variable('state')}). Where that one is lost: `ops adopt`, and new keys."
            )
        told.append("The key pepper of this host is the installation's from now on: nothing was made under another")
    if known.shards != settings.shards:
        if known.sharded:
            raise ClusterMismatch(
                f"{variable('shards')} is {settings.shards} on this host, and this installation runs with"
                f" {known.shards}: mail would be queued where nobody looks. Set {known.shards} here. To change the"
                f" number: run every host with {variable('processes')}=mta,worker until the queue is empty, stop them"
                " all, and start them with the new one."
            )
        told.append(f"The installation has {settings.shards} shards from now on, {known.shards} before")
    return told


async def _refuse_namesakes(connection: asyncpg.Connection, settings: Settings) -> None:
    """Whoever renews a lease under a name of ours lives, and our own are dead: we hold the state folder's lock."""
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
