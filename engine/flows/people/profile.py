"""What people change of their own record, and the name of their account: one transaction each, with its event."""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType, structs

from engine.areas.account import store as accounts
from engine.areas.people import profile
from engine.areas.people import store as people
from engine.areas.people.store import ProfileRow
from engine.base import ids
from engine.base.errors import not_found
from engine.base.events import AccountEvent
from engine.base.text import checked_line
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_plan

MAX_NAME = 120


class ProfilePatch(Struct, frozen=True, kw_only=True):
    """What is to be different; an unset field stays, None clears it."""

    name: str | UnsetType | None = UNSET
    display_name: str | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET
    signature: str | UnsetType | None = UNSET
    signature_addresses: Sequence[str] | UnsetType | None = UNSET


async def read_profile(pool: asyncpg.Pool, user: UUID) -> ProfileRow:
    """The person's profile."""
    row = await people.PROFILE.first(pool, user)
    if row is None:
        raise not_found("person")
    return row


async def change_profile(pool: asyncpg.Pool, account: UUID, user: UUID, wanted: ProfilePatch) -> ProfileRow:
    """The profile with the change made; the log of the account that they are at tells which fields, not what of them.

    400 for a value that can't be one, naming its field; 422 for what is no address.
    """
    given = _given(wanted)
    public = ids.format_id(ids.Kind.USER, user)
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, user)  # people before heads, as in the changes of their other records
        row = await people.PROFILE.first(connection, user)
        if row is None:
            raise not_found("person")
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
    """The account has this name; nothing happens where it has it already."""
    title = checked_line(name, "name", MAX_NAME)
    async with pool.acquire() as connection, connection.transaction():
        await locked_plan(connection, account)
        if await accounts.RENAME.records(connection, account, title):
            await record_event(connection, account, AccountEvent.ACCOUNT_RENAMED, {"name": title}, actor=actor)


def _given(wanted: ProfilePatch) -> dict[str, object]:
    """The fields that were given, checked, by the names of the row."""
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
