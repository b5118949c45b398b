"""First run in local mode: create an account, an API key and a verified domain for trying things out.

Every start in local mode also makes sure that a platform account exists. A first run that was interrupted is completed
by the next start: each step takes over what is there. Password and key are stored as digests only, so new ones replace
those that no file holds.
"""

import asyncio
import json
import secrets
import time
from pathlib import Path
from typing import Any

import argon2
import asyncpg

from engine.accounts import platform_account
from engine.base import clock, ids
from engine.base.local_mode import FIRST_RUN
from engine.base.operators import FIRST_OWNER
from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.people.account import store as accounts
from engine.people.api_keys import service as api_keys
from engine.people.api_keys import store as keys
from engine.people.people import store as people
from engine.sending.domains import store as domains
from ops import admin
from ops.host.state import write_private

DOMAIN = "hello.test"
DAILY_CAP = 100_000  # the first warm-up limit of new accounts, 50 a day, is too low for trying things out
VERIFY_WAIT_S = 30.0  # for a DNS responder that has just started on a busy machine
_KEY_NAME = "First key"
_MAX_KEYS = 100  # the plan's number is lower


async def ensure(settings: Settings, state: Path) -> dict[str, Any]:
    """Return the contents of `<state>/first-run.json` (mode 0600), created with its account on the first start.

    Returns nothing if the file's account is not in this database: the file belongs to another one.
    """
    file = state / FIRST_RUN
    async with admin.opened(settings) as pool:
        await platform_account.ensure_local(pool, settings)
        if file.is_file():
            kept = dict(json.loads(file.read_text("utf-8")))
            known = await accounts.READ.first(pool, ids.parse_id(ids.Kind.ACCOUNT, kept["accountId"]))
            if known is None:
                return {}
            await _confirm_operator(pool, kept["accountId"])
            if kept["baseUrl"] != _base_url(settings):  # the ports have changed
                kept["baseUrl"] = _base_url(settings)
                write_private(file, json.dumps(kept, indent=2) + "\n")
            return kept
        account = await _account(pool)
        await _confirm_operator(pool, account["accountId"])
        await _revoke_lost_keys(pool, account["accountId"])
        key = await admin.create_key(pool, settings, account=account["accountId"], name=_KEY_NAME, scopes=["all"])
        await _verify_domain(pool, settings, account["accountId"])
    made = {
        "baseUrl": _base_url(settings),
        "accountId": account["accountId"],
        "email": account["email"],
        "password": account["password"],
        "apiKey": key["apiKey"],
        "domain": DOMAIN,
    }
    write_private(file, json.dumps(made, indent=2) + "\n")
    return made


def _base_url(settings: Settings) -> str:
    return f"http://{settings.api_host}:{settings.api_port}"


async def _account(pool: asyncpg.Pool) -> dict[str, Any]:
    """Create the account and its owner; if an interrupted start did so, give the owner a new password."""
    person = await people.FIND.first(pool, FIRST_OWNER)
    owned = (
        []
        if person is None
        else [one for one in await people.MEMBERSHIPS.fetch(pool, person.id) if one.role == "owner"]
    )
    if person is None or not owned:
        return await admin.create_account(pool, name="Local", email=FIRST_OWNER, plan=Plan.SCALE, daily_cap=DAILY_CAP)
    password = secrets.token_urlsafe(18)
    hashed = await asyncio.to_thread(argon2.PasswordHasher().hash, password)
    async with pool.acquire() as connection, connection.transaction():
        await people.SET_PASSWORD.execute(connection, person.id, hashed, clock.now())
    account = ids.format_id(ids.Kind.ACCOUNT, owned[-1].account_id)  # the oldest
    return {"accountId": account, "email": person.email, "password": password}


async def _confirm_operator(pool: asyncpg.Pool, account: str) -> None:
    """Confirm the first owner as an operator, as long as they own the first account."""
    person = await people.FIND.first(pool, FIRST_OWNER)
    if person is None or person.is_operator:
        return
    owned = [one.account_id for one in await people.MEMBERSHIPS.fetch(pool, person.id) if one.role == "owner"]
    if ids.parse_id(ids.Kind.ACCOUNT, account) in owned:
        await people.SET_OPERATOR.execute(pool, person.id, clock.now())


async def _revoke_lost_keys(pool: asyncpg.Pool, account: str) -> None:
    owner = ids.parse_id(ids.Kind.ACCOUNT, account)
    for one in await keys.LIST.fetch(pool, owner, None, _MAX_KEYS):
        if one.name == _KEY_NAME and one.revoked_at is None:
            await api_keys.revoke_key(pool, owner, one.id, actor="operator")


async def _verify_domain(pool: asyncpg.Pool, settings: Settings, account: str) -> None:
    """Add the domain if it is missing, and check it until it is verified; raises RuntimeError after VERIFY_WAIT_S."""
    if await domains.READ.first(pool, ids.parse_id(ids.Kind.ACCOUNT, account), DOMAIN) is None:
        await admin.add_domain(pool, settings, account=account, name=DOMAIN, verified=False)
    ends = time.monotonic() + VERIFY_WAIT_S
    while True:
        checked = await admin.check_domain(pool, settings, account=account, name=DOMAIN)
        if checked is not None and checked["status"] == "verified":
            return
        if time.monotonic() > ends:
            raise RuntimeError(
                f"The local DNS responder did not verify {DOMAIN} within {VERIFY_WAIT_S:.0f} s: {checked}."
                " Read log/dns.log in the state folder, and start again."
            )
        await asyncio.sleep(0.5)
