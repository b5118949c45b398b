"""Create an account with its owner. Used by sign-up, identity sign-in and `ops accounts`."""

from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct, field

from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.base.plans import Plan
from engine.cells import claims
from engine.ledger.events import record_event
from engine.people.account import store as accounts
from engine.people.people import store as people
from engine.store.database_errors import UniqueViolation
from engine.store.queries import Conn


class NewAccount(Struct, frozen=True):
    """A newly created account."""

    id: UUID
    public_id: str
    owner_id: UUID


class NewOwner(Struct, frozen=True):
    """The first person of a new account: `email` in canonical form, `password_hash` None for a provider's person."""

    email: str
    password_hash: str | None
    verified_at: datetime | None = None
    signed_up_from: str | None = None
    id: UUID = field(default_factory=ids.uuid7)
    account_id: UUID = field(default_factory=ids.uuid7)


async def claim_for(owner: NewOwner) -> bool:
    """Claim the address and place the account in this cell, before the transaction that creates them.

    Returns False if another cell has the address.
    """
    return await claims.claim_owner(owner.account_id, owner.id, owner.email)


async def open_account(
    pool: asyncpg.Pool,
    *,
    name: str,
    email: str,
    password_hash: str,
    plan: Plan,
    daily_cap: int | None = None,
    monthly_cap: int | None = None,
    verified_at: datetime | None = None,
) -> NewAccount:
    """Create an account with its owner. Raises a 409 if a person with this address exists."""
    owner = NewOwner(email, password_hash, verified_at)
    if not await claim_for(owner):
        raise Refusal(ErrorType.CONFLICT, f"A person with the address {email} exists in another cell.")
    async with pool.acquire() as connection, connection.transaction():
        made = await open_with_owner(
            connection, owner, name=name, plan=plan, daily_cap=daily_cap, monthly_cap=monthly_cap, actor="operator"
        )
        if made is None:
            raise Refusal(ErrorType.CONFLICT, f"A person with the address {email} already exists.")
    return made


async def open_with_owner(
    connection: Conn,
    owner: NewOwner,
    *,
    name: str,
    plan: Plan,
    daily_cap: int | None = None,
    monthly_cap: int | None = None,
    actor: str | None = None,
) -> NewAccount | None:
    """Create an account within the caller's transaction; return None, and create nothing, if the address is in use.

    `actor` is who creates it, by default the owner.
    """
    account, user = owner.account_id, owner.id
    try:
        async with connection.transaction():  # a savepoint: a taken address leaves the caller's transaction usable
            await accounts.insert(
                connection, account, name=name, plan=plan, daily_cap=daily_cap, monthly_cap=monthly_cap
            )
            await people.insert_owner(
                connection,
                user=user,
                account=account,
                email=owner.email,
                password_hash=owner.password_hash,
                verified_at=owner.verified_at,
                signed_up_from=owner.signed_up_from,
            )
    except UniqueViolation:
        return None
    person = ids.format_id(ids.Kind.USER, user)
    detail = {"name": name, "plan": plan.value, "owner": person}
    await record_event(connection, account, AccountEvent.ACCOUNT_CREATED, detail, actor=actor or person)
    return NewAccount(account, ids.format_id(ids.Kind.ACCOUNT, account), user)
