"""Read and change the branding of the built-in mail with one-time codes."""

import asyncio
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import UNSET, UnsetType

from engine.base.errors import invalid
from engine.base.events import AccountEvent
from engine.base.secrets import random_base62
from engine.base.text import is_line
from engine.codes.verifications import logo as logos
from engine.codes.verifications import store
from engine.codes.verifications.logo import Logo
from engine.codes.verifications.types import SettingsRow
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.store.queries import Conn, Source

MAX_BRAND: Final = 80  # characters: it stands in the subject
TOKEN_LETTERS: Final = 22  # 130 bits
_DECODING = asyncio.Semaphore(2)  # a logo of 2,000 pixels a side takes 16 MB while it is decoded


async def read(source: Source, account: UUID) -> SettingsRow:
    """Return the branding of an account; all fields are None for one that never set any."""
    return await store.READ_SETTINGS.first(source, account) or SettingsRow()


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    brand_name: str | UnsetType | None,
    code_length: int | UnsetType | None,
    logo: str | UnsetType | None,
    actor: str,
) -> SettingsRow:
    """Change what is given (None clears it) and return the branding; `logo` is base64.

    Raises the 400 for an unusable brand name or logo; then nothing is changed.
    """
    named = _checked(brand_name) if isinstance(brand_name, str) else brand_name
    picture = await _read_logo(logo) if isinstance(logo, str) else logo
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        known = await read(connection, account)
        await store.SAVE_SETTINGS.execute(
            connection,
            account,
            known.brand_name if isinstance(named, UnsetType) else named,
            known.code_length if isinstance(code_length, UnsetType) else code_length,
        )
        if not isinstance(picture, UnsetType):
            await _save(connection, account, picture)
        given = {"brand_name": named, "code_length": code_length, "logo": picture}
        changed = [name for name, value in given.items() if value is not UNSET]
        await record_event(
            connection, account, AccountEvent.VERIFICATION_SETTINGS_UPDATED, {"fields": changed}, actor=actor
        )
        return await read(connection, account)


async def _read_logo(text: str) -> Logo:
    async with _DECODING:
        return await asyncio.to_thread(logos.read_logo, text)


async def _save(connection: Conn, account: UUID, logo: Logo | None) -> None:
    if logo is None:
        await store.SAVE_LOGO.execute(connection, account, None, None, None, None, None)
        return
    token = random_base62(TOKEN_LETTERS)
    await store.SAVE_LOGO.execute(connection, account, logo.content, token, logo.content_type, logo.width, logo.height)


def _checked(text: str) -> str | None:
    line = text.strip()
    if len(line) > MAX_BRAND:
        raise invalid("brandName", f"`brandName` has {len(line)} characters; the limit is {MAX_BRAND}. Shorten it.")
    if not is_line(line):
        raise invalid("brandName", "`brandName` must be one line without control characters.")
    return line or None
