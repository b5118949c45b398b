"""Implementation of the commands for accounts, keys, domains and the platform account, without printing.

They work directly on the service's database. `call_api` is for commands that send or read mail as a client does.
"""

import asyncio
import json
import secrets
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import argon2
import asyncpg

from engine.accounts import platform_account
from engine.base import clock, ids
from engine.base.plans import Plan
from engine.base.scopes import SCOPES
from engine.base.settings import Settings
from engine.cells import claims
from engine.mail.address import parse_mailbox
from engine.people import open_account
from engine.people.api_keys.service import create_api_key
from engine.sending.domains import rules
from engine.sending.domains import service as adding
from engine.sending.domains import store as domains
from engine.sending.domains.types import CheckedRecord
from engine.sending.domains.verification import known_records, verify_now
from engine.store.postgres import open_pool

Answer = TypeVar("Answer")

API_TIMEOUT_S = 30
MAX_NAME = 120


class ApiCallError(RuntimeError):
    """The API answered with an error; `answer` is the decoded body."""

    def __init__(self, status: int, answer: dict[str, Any]) -> None:
        error = answer.get("error", {})
        super().__init__(f"{status} {error.get('type', '')}: {error.get('message', answer)}")
        self.status = status
        self.answer = answer


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[asyncpg.Pool]:
    """Open a pool of two connections to the service's database; raises RuntimeError if no URL is known."""
    if settings.database_url is None:
        raise RuntimeError("No database is configured. Set WAYBILL_DATABASE_URL.")
    claims.configure(settings)
    pool = await open_pool(settings.database_url, name="ops", largest=2)
    try:
        yield pool
    finally:
        await claims.close()
        await pool.close()


def with_pool(settings: Settings, work: Callable[[asyncpg.Pool], Awaitable[Answer]]) -> Answer:
    """Open a pool, run `work` with it and return its result; for synchronous callers."""

    async def run() -> Answer:
        async with opened(settings) as pool:
            return await work(pool)

    return asyncio.run(run())


async def create_account(
    pool: asyncpg.Pool, *, name: str, email: str, plan: Plan, daily_cap: int | None, monthly_cap: int | None = None
) -> dict[str, Any]:
    """Create an account and its owner, with a random password that the result contains; raises ValueError."""
    if not 1 <= len(name.strip()) <= MAX_NAME:
        raise ValueError(f"The name has {len(name.strip())} characters. Give a name of 1 to {MAX_NAME} characters.")
    email = parse_mailbox(email).address
    password = secrets.token_urlsafe(18)
    made = await open_account.open_account(
        pool,
        name=name,
        email=email.lower(),
        password_hash=await asyncio.to_thread(argon2.PasswordHasher().hash, password),
        plan=plan,
        daily_cap=daily_cap,
        monthly_cap=monthly_cap,
        verified_at=clock.now(),
    )
    return {"accountId": made.public_id, "name": name, "email": email, "password": password, "plan": plan.value}


async def create_key(
    pool: asyncpg.Pool, settings: Settings, *, account: str, name: str, scopes: list[str]
) -> dict[str, Any]:
    """Create an API key; `scopes` may be `["all"]`."""
    made = await create_api_key(
        pool,
        ids.parse_id(ids.Kind.ACCOUNT, account),
        name=name,
        scopes=sorted(SCOPES) if scopes == ["all"] else scopes,
        pepper=settings.pepper,
        actor="operator",
    )
    return {"id": made.public_id, "apiKey": made.token, "scopes": made.scopes}


async def add_domain(
    pool: asyncpg.Pool, settings: Settings, *, account: str, name: str, verified: bool
) -> dict[str, Any]:
    """Add a domain and return the records to publish; `verified` skips the check in DNS.

    Raises Refusal if the domain is verified on another account, also with `verified`.
    """
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    made = await adding.add_domain(pool, settings, account_id, name, vouched=verified, actor="operator")
    row = await domains.FIND.first(pool, account_id, made.id)
    assert row is not None
    keys = await domains.PUBLISHED.fetch(pool, made.id)
    fields = ("type", "host", "value", "required")
    shown = [{field: one[field] for field in fields} for one in _shown(known_records(settings, row, keys))]
    return {"id": made.public_id, "name": made.name, "status": row.status, "records": shown}


async def check_domain(pool: asyncpg.Pool, settings: Settings, *, account: str, name: str) -> dict[str, Any] | None:
    """Check the domain's records in DNS and store its new status; returns None if the account lacks the domain."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    row = await domains.READ.first(pool, account_id, rules.checked_name(name, settings.mail_host))
    if row is None:
        return None
    found = await verify_now(pool, settings, account_id, row.id)
    shown = {"name": found.domain.name, "status": found.domain.status, "records": _shown(found.records)}
    return shown if found.notice is None else shown | {"notice": found.notice}


async def set_platform(pool: asyncpg.Pool, settings: Settings, *, account: str, sender: str | None) -> dict[str, Any]:
    """Send Waybill's own mail from this account; raises Refusal if the sender's domain is not verified on it."""
    account_id = ids.parse_id(ids.Kind.ACCOUNT, account)
    return _platform(await platform_account.appoint(pool, settings, account_id, sender))


async def show_platform(pool: asyncpg.Pool, settings: Settings) -> dict[str, Any]:
    """Return the account that Waybill's own mail comes from, its sender, and how many of its mails wait."""
    return _platform(await platform_account.state(pool, settings))


def call_api(base_url: str, method: str, path: str, key: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make one request to the public API; raises ApiCallError for an error reply, OSError without a reply."""
    request = urllib.request.Request(  # noqa: S310 - the operator's own server
        base_url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=API_TIMEOUT_S) as answer:  # noqa: S310
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        try:
            answer_body = dict(json.load(error))
        except ValueError:
            answer_body = {}
        raise ApiCallError(error.code, answer_body) from error


def _shown(checks: Sequence[CheckedRecord]) -> list[dict[str, Any]]:
    return [
        {
            "type": check.wanted.type,
            "host": check.wanted.host,
            "value": check.wanted.value,
            "required": check.wanted.required,
            "status": check.finding.status,
            "found": list(check.finding.found),
        }
        for check in checks
    ]


def _platform(found: platform_account.PlatformState) -> dict[str, Any]:
    return {
        "accountId": None if found.account_id is None else ids.format_id(ids.Kind.ACCOUNT, found.account_id),
        "from": found.sender,
        "domain": found.domain,
        "domainStatus": found.domain_status,
        "waiting": found.waiting,
        "oldest": clock.iso_or_none(found.oldest),
    }
