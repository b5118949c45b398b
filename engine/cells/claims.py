"""Claim names and places in the directory before this cell commits the rows that have them.

A process that belongs to a cell calls `configure` at its start. Without `WAYBILL_DIRECTORY_URL` all functions return at
once. The directory is opened at the first use, so that a cell starts and sends while the directory is down; what needs
a claim is refused until it is back (DatabaseUnavailable). Never call them while a transaction is open.
"""

import asyncio
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.base.version import COMMAND
from engine.cells.directory import ClaimedElsewhere, Directory, DirectoryConflict
from engine.store.database_errors import DatabaseUnavailable
from engine.store.migrate import MigrationError

HINT_COOKIE: Final = "svc_cell"  # name of the cell that a browser was at last; only chooses which cell answers


class ClaimKind(StrEnum):
    """The kinds of names that one cell may have."""

    EMAIL = "email"  # of a person
    DOMAIN = "domain"  # verified for sending, and thereby receiving
    IDENTITY = "identity"  # issuer and subject at an identity provider


class _Membership(Struct):
    """The cell of this process; `directory` is None until it is first used."""

    url: str
    cell: str
    opening: asyncio.Lock
    directory: Directory | None = None


_member: _Membership | None = None


def configure(settings: Settings) -> None:
    """Let this process make its claims for the cell of the settings."""
    global _member  # noqa: PLW0603 - a property of the process
    if settings.directory_url is None or settings.cell is None:
        _member = None
    else:
        _member = _Membership(settings.directory_url, settings.cell, asyncio.Lock())


def own_cell() -> str | None:
    """Return the name of the cell of this process; None in an installation without cells."""
    return None if _member is None else _member.cell


async def close() -> None:
    """Close the connections to the directory."""
    if _member is not None and _member.directory is not None:
        directory, _member.directory = _member.directory, None
        await directory.close()


async def directory() -> tuple[Directory, str] | None:
    """Return the directory and the name of this cell; None in an installation without one."""
    if _member is None:
        return None
    async with _member.opening:
        if _member.directory is None:
            try:
                _member.directory = await _opened(_member.url, _member.cell)
            except MigrationError as error:
                raise DatabaseUnavailable(str(error)) from error
    return _member.directory, _member.cell


async def _opened(url: str, cell: str) -> Directory:
    """Open the directory. Raises DatabaseUnavailable if it does not know this cell, which could claim nothing."""
    opened = await Directory.open(url, name="cell")
    async with AsyncExitStack() as unused:
        unused.push_async_callback(opened.close)
        if cell in {one.name for one in await opened.cells()}:
            unused.pop_all()
            return opened
    raise DatabaseUnavailable(f"the directory of cells has no cell {cell}: add it with `{COMMAND} cells add`")


async def claim(kind: ClaimKind, name: str, holder: UUID) -> None:
    """Claim a name for this cell. Raises ClaimedElsewhere."""
    joined = await directory()
    if joined is not None:
        await joined[0].claim(kind.value, name, cell=joined[1], holder=holder)


async def check_here(kind: ClaimKind, name: str) -> None:
    """Raise ClaimedElsewhere if another cell has the name; claim nothing."""
    joined = await directory()
    found = None if joined is None else await joined[0].claimed(kind.value, name)
    if joined is not None and found is not None and found.cell != joined[1]:
        raise ClaimedElsewhere(found)


def identity(issuer: str, subject: str) -> str:
    """Return the name of an identity in claims."""
    return f"{issuer} {subject}"


async def place(account: UUID) -> None:
    """Place a new account in this cell."""
    joined = await directory()
    if joined is not None:
        try:
            await joined[0].place(account, joined[1])
        except DirectoryConflict as error:
            raise Refusal(ErrorType.CONFLICT, "Another cell has your account. Ask the operator.") from error


async def claim_owner(account: UUID, person: UUID, email: str) -> bool:
    """Place a new account and claim the address of its owner; return False if another cell has the address."""
    try:
        await claim(ClaimKind.EMAIL, email, person)
    except ClaimedElsewhere:
        return False
    await place(account)
    return True
