"""Compose the last lines of `ops up`: the address of the web console, and how the first owner signs in to it.

The sign-in link is made for a terminal only, because a log may keep any other output. In local mode each start makes
one: the same person can read the password in first-run.json, so the link only saves copying it. In live mode it is made
until the first owner has signed in; after that, `ops person sign-in-link` makes one on request.
"""

from collections.abc import Mapping
from typing import Any

from engine.base import clock, ids
from engine.base.local_mode import FIRST_RUN
from engine.base.settings import Settings
from engine.base.version import COMMAND
from engine.people import sign_in_link
from ops import admin


async def console_lines(settings: Settings, made: Mapping[str, Any], *, terminal: bool) -> list[str]:
    """Return the lines to print: the console, the way in, and the documentation.

    `made` are the contents of first-run.json, empty outside of local mode.
    """
    lines = await _ways_in(settings, made, terminal=terminal)
    return [*lines, f"Documentation: {settings.public_url.rstrip('/')}/docs"]


async def _ways_in(settings: Settings, made: Mapping[str, Any], *, terminal: bool) -> list[str]:
    account = ids.parse_id(ids.Kind.ACCOUNT, made["accountId"]) if made else None
    async with admin.opened(settings) as pool:
        owner = await sign_in_link.first_owner(pool, account)
        link = None
        if owner is not None and terminal and (made or not owner.signed_in):
            link = await sign_in_link.make_link(pool, settings, owner.id)
    lines = [f"Console: {settings.public_url.rstrip('/')}/console/"]
    if owner is None:
        return lines if made else [*lines, _first_account()]
    if link is not None:
        hours = round((link.expires_at - clock.now()).total_seconds() / 3600)
        lines.append(f"Sign in as {owner.email} (works once, for {hours} h): {link.url}")
    elif made or not owner.signed_in:
        lines.append(f"A link to sign in: {COMMAND} person sign-in-link {owner.email}")
    if made:
        lines.append(f"The password of {made['email']} is in {settings.state / FIRST_RUN}")
    return lines


def _first_account() -> str:
    return (
        f"There is no account yet. Create one: {COMMAND} account create --name NAME --email ADDRESS;"
        f" then sign in: {COMMAND} person sign-in-link ADDRESS"
    )
