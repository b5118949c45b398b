"""Settling that stalls: outcomes that PostgreSQL cannot take, and the files that keep them meanwhile."""

import contextlib
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg

from mta.outbound.journal_file import SUFFIX

_LENGTH = struct.Struct(">I")  # before each record, after a first line


@contextlib.asynccontextmanager
async def locked_heads(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Keep every account's head locked, so that no outcome can be committed.

    Lock them before a process starts that delivers: one that runs may settle before they are locked.
    """
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM account_heads FOR UPDATE")
            yield connection
    finally:
        await connection.close()


async def end_sessions(connection: asyncpg.Connection, process: str) -> None:
    """End the sessions that a killed process left waiting, before what they wait for is free."""
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE $1",
        f"waybill {process}%",
    )


def outcome_files(folder: Path) -> list[Path]:
    """Return the files of outcomes below the state's folder."""
    return list((folder / "mta").glob(f"*{SUFFIX}"))


def kept_outcomes(folder: Path) -> int:
    """Return how many whole records those files hold; their processes may be writing."""
    found = 0
    for path in outcome_files(folder):
        content = path.read_bytes()
        at = content.find(b"\n") + 1
        while at and at + _LENGTH.size <= len(content):
            at += _LENGTH.size + _LENGTH.unpack_from(content, at)[0]
            found += at <= len(content)
    return found
