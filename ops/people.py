"""Implementation of `ops person`: show a person, make a sign-in link, drop their second factor, end their sessions,
confirm them as an operator.
"""

from typing import Any

import asyncpg

from engine.base import clock, ids
from engine.base.operators import operators
from engine.base.settings import Settings
from engine.people import person_admin, sign_in_link


async def shown(pool: asyncpg.Pool, *, email: str) -> dict[str, Any]:
    """Return the person who signs in with `email` and their accounts; raises ValueError if there is none."""
    found = await _found(pool, email)
    person = found.person
    return {
        "id": ids.format_id(ids.Kind.USER, person.id),
        "email": person.email,
        "emailVerified": person.email_verified_at is not None,
        "verifiedByLinkAlone": person.verified_by_link,
        "twoFactor": person.has_totp,
        "operator": person.is_operator,
        "createdAt": clock.iso(person.created_at),
        "accounts": [
            {"id": ids.format_id(ids.Kind.ACCOUNT, one.account_id), "name": one.name, "role": one.role}
            for one in found.memberships
        ],
    }


async def reset_factor(pool: asyncpg.Pool, *, email: str) -> dict[str, Any]:
    """Remove a person's second factor and end all their sessions; raises ValueError for an unknown address."""
    found = await _found(pool, email)
    dropped = await person_admin.drop_second_factor(pool, found.person)
    return await shown(pool, email=email) | {"secondFactorDropped": dropped}


async def make_link(pool: asyncpg.Pool, settings: Settings, *, email: str) -> dict[str, Any]:
    """Return a link that signs a person in once; raises ValueError for an unknown address."""
    found = await _found(pool, email)
    made = await sign_in_link.make_link(pool, settings, found.person.id)
    return {
        "email": found.person.email,
        "link": made.url,
        "expiresAt": clock.iso(made.expires_at),
        "twoFactor": found.person.has_totp,
    }


async def sign_out(pool: asyncpg.Pool, *, email: str) -> dict[str, Any]:
    """End all sessions of a person and invalidate their sign-in link; raises ValueError for an unknown address."""
    found = await _found(pool, email)
    ended = await person_admin.sign_out(pool, found.person)
    return await shown(pool, email=email) | {"sessionsEnded": ended}


async def operator(pool: asyncpg.Pool, settings: Settings, *, email: str, revoked: bool) -> dict[str, Any]:
    """Confirm a person as an operator, or revoke that; raises ValueError for an unknown address, Refusal if their
    address is not proven.
    """
    person = (await _found(pool, email)).person
    await (person_admin.revoke_operator if revoked else person_admin.confirm_operator)(pool, person)
    named = person.email in operators(settings)
    return await shown(pool, email=email) | {"namedBySetting": named}


async def _found(pool: asyncpg.Pool, email: str) -> person_admin.PersonWithAccounts:
    found = await person_admin.find(pool, email)
    if found is None:
        raise ValueError(f"No person signs in with {email}. Check the spelling of the address.")
    return found
