"""`ops person`: people who can't sign in or whose sessions were stolen, and operators."""

from typing import Any

import asyncpg
import click

from engine.base import clock, ids
from engine.base.operators import operators
from engine.base.settings import Settings
from engine.people import person_admin, sign_in_link
from ops.commands.base import as_json, in_database, in_service, reported, show

_email = click.argument("email", help="Email address that the person signs in with.")


@click.group()
def person() -> None:
    """Help people who can't sign in, or whose sessions were stolen."""


@person.command("show")
@_email
@as_json
@reported
def person_show(*, email: str, as_json: bool) -> None:
    """Show the person who signs in with an email address, and their accounts."""
    show(in_database(shown, email=email), as_json=as_json)


@person.command("reset-factor")
@_email
@as_json
@reported
def person_reset_factor(*, email: str, as_json: bool) -> None:
    """Turn off a person's second factor (app and recovery codes lost), end their sessions and notify them by mail."""
    show(in_database(reset_factor, email=email), as_json=as_json)


@person.command("sign-in-link")
@_email
@as_json
@reported
def person_sign_in_link(*, email: str, as_json: bool) -> None:
    """Print a link that signs a person in to the console once; a second factor is still required."""
    show(in_service(make_link, email=email), as_json=as_json)


@person.command("operator")
@_email
@click.option("--revoke", "revoked", is_flag=True, help="Remove the person's operator rights.")
@as_json
@reported
def person_operator(*, email: str, revoked: bool, as_json: bool) -> None:
    """Confirm a person as an operator of the installation; WAYBILL_OPERATORS must name their address too."""
    show(in_service(operator, email=email, revoked=revoked), as_json=as_json)


@person.command("sign-out")
@_email
@as_json
@reported
def person_sign_out(*, email: str, as_json: bool) -> None:
    """End all of a person's sessions, and invalidate their sign-in link."""
    show(in_database(sign_out, email=email), as_json=as_json)


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
