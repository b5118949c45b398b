"""Implementation of `ops site`: print what `site_admin` shows and changes."""

from typing import Any

import asyncpg
import msgspec

from engine.base.settings import Settings
from engine.sending import site_admin


async def show(pool: asyncpg.Pool, settings: Settings, name: str) -> dict[str, Any]:
    """Return the limits of a domain, mail host or site with their origin, and its state in each mta process."""
    return _plain(await site_admin.show(pool, settings, name))


async def change(
    pool: asyncpg.Pool, settings: Settings, name: str, fields: dict[str, object], why: str | None
) -> dict[str, Any]:
    """Set fields of a name's rule, or remove those that are None; raises ValueError."""
    return _plain(await site_admin.change(pool, settings, name, fields, why))


async def reset(pool: asyncpg.Pool, settings: Settings, name: str) -> dict[str, Any]:
    """Remove the operator's rule for a name; raises Refusal (404) if there is none."""
    removed = await site_admin.reset(pool, settings, name)
    return {"name": removed, "reset": "shipped rules and settings apply"}


async def listing(pool: asyncpg.Pool) -> dict[str, Any]:
    """Return all rules, and the sites whose state changed in the last hour."""
    return _plain(await site_admin.listing(pool))


def _plain(found: object) -> dict[str, Any]:
    return dict(msgspec.to_builtins(found))
