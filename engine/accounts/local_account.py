"""Open accounts for tests, in local mode: with an API key and a verified domain, in one step."""

import secrets
from typing import Final

import argon2
import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from engine.base.settings import Settings
from engine.people import open_account
from engine.people.api_keys.service import create_api_key
from engine.sending.domains import service as adding

ACTOR: Final = "local"
DAILY_CAP: Final = 100_000
_ZONE: Final = "twin.test"
# Nobody knows the password, so guessing it need not be slow: 144 bits are drawn for it.
_HASHER: Final = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class LocalAccount(Struct, frozen=True):
    """A new account: its id, its key with all scopes, and the domain that it may send from."""

    account_id: str
    api_key: str
    domain: str
    owner_email: str


async def open_one(pool: asyncpg.Pool, settings: Settings, name: str) -> LocalAccount:
    """Open an account; raises the 404 outside of local mode."""
    if settings.delivery != "local":
        raise Refusal(
            ErrorType.NOT_FOUND,
            f"This operation needs local mode, but WAYBILL_DELIVERY is {settings.delivery}. Sign up in the "
            "console instead.",
        )
    domain = f"{secrets.token_hex(6)}.{_ZONE}"
    email = f"owner@{domain}"
    hashed = _HASHER.hash(secrets.token_urlsafe(18))
    made = await open_account.open_account(
        pool, name=name, email=email, password_hash=hashed, plan=Plan.SCALE, daily_cap=DAILY_CAP,
        verified_at=clock.now(),
    )  # fmt: skip
    account = ids.parse_id(ids.Kind.ACCOUNT, made.public_id)
    key = await create_api_key(
        pool, account, name=name, scopes=sorted(SCOPES), pepper=settings.pepper, actor=ACTOR
    )  # fmt: skip
    await adding.add_domain(pool, settings, account, domain, vouched=True, actor=ACTOR)
    return LocalAccount(made.public_id, key.token, domain, email)
