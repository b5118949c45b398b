"""The platform account: the account that system mail is sent from.

In local mode the first start creates it, with the service's own host name as its domain. Otherwise the operator names
an account (`ops platform set`); system mail waits until then.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import existing
from engine.base.events import AccountEvent
from engine.base.plans import Plan
from engine.base.settings import Settings, variable
from engine.ledger.events import record_event
from engine.mail.address import domain_name, parse_mailbox
from engine.people.account import store as accounts
from engine.people.system_mail import store as system_mail
from engine.sending.domains import store as domains
from engine.sending.domains.service import make_pair
from engine.store import caches
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.queries import Conn, Queries, Source

NAME: Final = "Waybill"
DAILY_CAP: Final = 100_000  # of the local account: the usual first cap of 50 per day would end a trial early
PLAN: Final = Plan.FREE  # for its short retention of people's addresses and links
_SQL = Queries.beside(__file__, "platform_account.sql", lock_schema=LOCK_SCHEMA)


class Platform(Struct, frozen=True):
    """The platform account as configured; `due` is True if system mail is due."""

    account_id: UUID | None
    sender: str | None
    due: bool


class PlatformState(Struct, frozen=True):
    """The platform account as operators see it; `domain_status` is None if it does not have the sender's domain."""

    account_id: UUID | None
    sender: str
    domain: str
    domain_status: str | None
    waiting: int
    oldest: datetime | None


_READ = _SQL.rows("read_platform", Platform)
_SET = _SQL.command("set_platform")
_LOCK = _SQL.command("lock_platform")


async def read(source: Source, at: datetime) -> Platform:
    """Read the platform account, and whether it has mail due at `at`."""
    found = await _READ.first(source, at)
    assert found is not None
    return found


def sender_of(settings: Settings, platform: Platform | None) -> str:
    """Return the From of system mail: from the settings, else as named with the account, else of the service's own
    host.
    """
    named = None if platform is None else platform.sender
    return settings.system_from or named or f"{NAME} <no-reply@{settings.mail_host.lower()}>"


async def state(source: Source, settings: Settings) -> PlatformState:
    """Return the platform account, its sender and the number of waiting mails."""
    platform = await read(source, clock.now())
    sender = sender_of(settings, platform)
    domain = _domain_of(sender)
    status = None if platform.account_id is None else await _status(source, platform.account_id, domain)
    waiting = await system_mail.WAITING.first(source)
    assert waiting is not None
    return PlatformState(platform.account_id, sender, domain, status, waiting.waiting, waiting.oldest)


async def appoint(pool: asyncpg.Pool, settings: Settings, account: UUID, sender: str | None) -> PlatformState:
    """Make this account the platform account, with `sender` if given.

    Raises 404 for an unknown account; ValueError with instructions unless the sender's domain is verified on it.
    """
    existing(await accounts.READ.first(pool, account), "account")
    named = sender_of(settings, Platform(account, sender, due=False))
    domain = _domain_of(named)
    status = await _status(pool, account, domain)
    if status != "verified":
        raise ValueError(_unverified(named, domain, status))
    async with pool.acquire() as connection, connection.transaction():
        await _SET.execute(connection, account, sender)
        await caches.bump(connection, "inbound")
        detail = {"sender": named}
        await record_event(connection, account, AccountEvent.PLATFORM_APPOINTED, detail, actor="operator")
    return await state(pool, settings)


async def ensure_local(pool: asyncpg.Pool, settings: Settings) -> UUID:
    """In local mode, create the platform account and its verified domain where missing; return its id.

    An account or sender named by the operator is left unchanged, and so is a domain of another account. Safe at every
    start and for concurrent calls.
    """
    platform = await read(pool, clock.now())
    if platform.account_id is not None and not await _lacking(pool, settings, platform):
        return platform.account_id
    keys = await make_pair("platform", "wb1")
    async with pool.acquire() as connection, connection.transaction():
        await _LOCK.execute(connection)
        platform = await read(connection, clock.now())
        account = platform.account_id
        if account is None:
            account = await _open(connection)
            platform = await read(connection, clock.now())
        name = await _lacking(connection, settings, platform)
        if name is not None:
            domain = ids.uuid7()
            await domains.insert(connection, domain, account, name, pepper=settings.pepper, keys=keys)
            await domains.VOUCH.execute(connection, domain)
            detail = {"id": ids.format_id(ids.Kind.DOMAIN, domain), "name": name}
            await record_event(connection, account, AccountEvent.DOMAIN_ADDED, detail, actor="service")
            await record_event(
                connection, account, AccountEvent.DOMAIN_VERIFIED, detail | {"by": "service"}, actor="service"
            )
            await caches.bump(connection, "domains")
    return account


async def _open(connection: Conn) -> UUID:
    account = ids.uuid7()
    await accounts.insert(connection, account, name=NAME, plan=PLAN, daily_cap=DAILY_CAP, monthly_cap=31 * DAILY_CAP)
    await record_event(
        connection, account, AccountEvent.ACCOUNT_CREATED, {"name": NAME, "plan": PLAN.value}, actor="service"
    )
    await _SET.execute(connection, account, None)
    await caches.bump(connection, "inbound")
    return account


async def _lacking(source: Source, settings: Settings, platform: Platform) -> str | None:
    """Return the domain that the account lacks and that no account has, else None."""
    if platform.sender is not None or platform.account_id is None:
        return None
    name = _domain_of(sender_of(settings, platform))
    if await _status(source, platform.account_id, name) is not None:
        return None
    holder = await domains.HOLDER.first(source, name, platform.account_id)  # no domain has an account's id
    return name if holder is None else None


def _domain_of(sender: str) -> str:
    return domain_name(parse_mailbox(sender).domain)


async def _status(source: Source, account: UUID, domain: str) -> str | None:
    row = await domains.READ.first(source, account, domain)
    return None if row is None else row.status


def _unverified(sender: str, domain: str, status: str | None) -> str:
    why = "is not a domain of this account" if status is None else f"is not verified ({status})"
    return (
        f"System mail would come from {sender}, but {domain} {why}. Verify it first, or name another sender with"
        f" --from or {variable('system_from')}."
    )
