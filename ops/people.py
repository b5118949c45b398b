"""`ops person show|reset-factor|sign-out`: help for people who can't get in, or who are no longer alone."""

from typing import Any

import asyncpg

from engine.base import clock, ids
from engine.flows.people import person_admin


async def shown(pool: asyncpg.Pool, *, email: str) -> dict[str, Any]:
    """Who has an address, and where; raises ValueError where it is nobody's."""
    found = await _found(pool, email)
    person = found.person
    return {
        "id": ids.format_id(ids.Kind.USER, person.id),
        "email": person.email,
        "emailVerified": person.email_verified_at is not None,
        "twoFactor": person.has_totp,
        "createdAt": clock.iso(person.created_at),
        "accounts": [
            {"id": ids.format_id(ids.Kind.ACCOUNT, one.account_id), "name": one.name, "role": one.role}
            for one in found.memberships
        ],
    }


async def reset_factor(pool: asyncpg.Pool, *, email: str) -> dict[str, Any]:
    """The person signs in without a code from now on; all their sessions end."""
    found = await _found(pool, email)
    dropped = await person_admin.drop_second_factor(pool, found.person)
    return await shown(pool, email=email) | {"secondFactorDropped": dropped}


async def sign_out(pool: asyncpg.Pool, *, email: str) -> dict[str, Any]:
    """The person is signed in nowhere any more."""
    found = await _found(pool, email)
    ended = await person_admin.sign_out(pool, found.person)
    return await shown(pool, email=email) | {"sessionsEnded": ended}


async def _found(pool: asyncpg.Pool, email: str) -> person_admin.PersonWithAccounts:
    found = await person_admin.find(pool, email)
    if found is None:
        raise ValueError(f"nobody signs in with {email}")
    return found
