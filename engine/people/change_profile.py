"""Change a person's profile, and the name of an account: one transaction each, with its event."""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType, structs

from engine.base import ids
from engine.base.errors import existing
from engine.base.events import AccountEvent
from engine.base.text import checked_line
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.people.account import store as accounts
from engine.people.people import profile
from engine.people.people import store as people
from engine.people.people.store import ProfileRow

MAX_NAME = 120


class ProfilePatch(Struct, frozen=True, kw_only=True):
    """The requested changes; an unset field stays, None clears it."""

    name: str | UnsetType | None = UNSET
    display_name: str | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET
    signature: str | UnsetType | None = UNSET
    signature_addresses: Sequence[str] | UnsetType | None = UNSET


async def read_profile(pool: asyncpg.Pool, user: UUID) -> ProfileRow:
    """Return the person's profile."""
    return existing(await people.PROFILE.first(pool, user), "person")


async def change_profile(pool: asyncpg.Pool, account: UUID, user: UUID, wanted: ProfilePatch) -> ProfileRow:
    """Change the profile and return it; the log of the session's account names the changed fields, not their values.

    Raises 400 for an invalid value, naming its field; 422 for an invalid address.
    """
    given = _given(wanted)
    public = ids.format_id(ids.Kind.USER, user)
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, user)  # lock people before heads
        row = existing(await people.PROFILE.first(connection, user), "person")
        changed = structs.replace(row, **given)
        fields = sorted(name for name in given if getattr(row, name) != getattr(changed, name))
        if fields:
            await people.SET_PROFILE.execute(
                connection, user, changed.name, changed.display_name, changed.timezone, changed.signature,
                changed.signature_addresses,
            )  # fmt: skip
            detail = {"id": public, "fields": fields}
            await record_event(connection, account, AccountEvent.MEMBER_PROFILE_CHANGED, detail, actor=public)
    return changed


async def rename_account(pool: asyncpg.Pool, account: UUID, name: str, *, actor: str) -> None:
    """Rename the account; does nothing if it has that name."""
    title = checked_line(name, "name", MAX_NAME)
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        if await accounts.RENAME.records(connection, account, title):
            await record_event(connection, account, AccountEvent.ACCOUNT_RENAMED, {"name": title}, actor=actor)


def _given(wanted: ProfilePatch) -> dict[str, object]:
    """Return the given fields, checked, by the column names of the row."""
    found: dict[str, object] = {}
    if wanted.name is not UNSET:
        found["name"] = profile.checked_name(wanted.name, "name") or ""
    if wanted.display_name is not UNSET:
        found["display_name"] = profile.checked_name(wanted.display_name, "displayName")
    if wanted.timezone is not UNSET:
        found["timezone"] = profile.checked_zone(wanted.timezone)
    if wanted.signature is not UNSET:
        found["signature"] = profile.checked_signature(wanted.signature)
    if wanted.signature_addresses is not UNSET:
        found["signature_addresses"] = profile.checked_addresses(wanted.signature_addresses)
    return found
