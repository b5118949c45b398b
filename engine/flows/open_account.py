"""Opening an account, and what every change of one shares: its event, its plan under the lock, the refusal at a cap."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.account import store as accounts
from engine.areas.people import store as people
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.plans import Plan
from engine.ledger import heads, log
from engine.store.database_errors import UniqueViolation
from engine.store.queries import Conn


class NewAccount(Struct, frozen=True):
    """An account as it was opened."""

    id: UUID
    public_id: str
    owner_id: UUID


class Owner(Struct, frozen=True):
    """The first person of a new account: `email` in canonical form, `password_hash` None for a provider's person."""

    email: str
    password_hash: str | None
    verified_at: datetime | None = None


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
    """A new account with its owner; 409 when the address is somebody's already."""
    async with pool.acquire() as connection, connection.transaction():
        owner = Owner(email, password_hash, verified_at)
        made = await open_with_owner(
            connection, owner, name=name, plan=plan, daily_cap=daily_cap, monthly_cap=monthly_cap, actor="operator"
        )
        if made is None:
            raise Refusal(ErrorType.CONFLICT, f"{email} belongs to a person already.")
    return made


async def open_with_owner(
    connection: Conn,
    owner: Owner,
    *,
    name: str,
    plan: Plan,
    daily_cap: int | None = None,
    monthly_cap: int | None = None,
    actor: str | None = None,
) -> NewAccount | None:
    """The same within the caller's transaction; None, and nothing made, when the address is somebody's already.

    Without an `actor` it is the owner themself who opens it.
    """
    account, user = ids.uuid7(), ids.uuid7()
    try:
        async with connection.transaction():  # a savepoint: a taken address leaves the caller's transaction usable
            await accounts.insert(
                connection, account, name=name, plan=plan, daily_cap=daily_cap, monthly_cap=monthly_cap
            )
            await accounts.insert_owner(
                connection,
                user=user,
                account=account,
                email=owner.email,
                password_hash=owner.password_hash,
                verified_at=owner.verified_at,
            )
    except UniqueViolation:
        return None
    person = ids.format_id(ids.Kind.USER, user)
    detail = {"name": name, "plan": plan.value, "owner": person}
    await record(connection, account, "account.created", detail, actor=actor or person)
    return NewAccount(account, ids.format_id(ids.Kind.ACCOUNT, account), user)


async def record(
    connection: Conn, account: UUID, kind: str, detail: Mapping[str, object], *, actor: str | None = None
) -> None:
    """Write one account event within the caller's transaction.

    `actor` is who did it: the id of a person (`usr_…`) or an API key (`key_…`), `operator` or `service`.
    """
    locked = await heads.lock(connection, [account])
    told = detail if actor is None else {**detail, "actor": actor}
    entry = log.Entry(account, kind, log.detail_text(told), clock.now())
    await log.append(connection, log.seal_all(locked, [entry]))
    await heads.save(connection, locked.values())


async def tell_accounts(
    connection: Conn, user: UUID, kind: str, detail: dict[str, object], *, actor: str | None = None
) -> None:
    """Write an event about a person to the log of every account they belong to, within the caller's transaction.

    `actor` is who did it; None: the person.
    """
    person = ids.format_id(ids.Kind.USER, user)
    memberships = await people.MEMBERSHIPS.fetch(connection, user)
    locked = await heads.lock(connection, [one.account_id for one in memberships])
    at, text = clock.now(), log.detail_text({"id": person, **detail, "actor": actor or person})
    if locked:
        await log.append(connection, log.seal_all(locked, [log.Entry(one, kind, text, at) for one in locked]))
        await heads.save(connection, locked.values())


async def locked_plan(connection: Conn, account: UUID) -> Plan:
    """The account's plan, with its head locked so that a cap is counted exactly; 404 when it is erased by now."""
    locked = await heads.lock(connection, [account])
    if account not in locked:
        raise not_found("account")
    return Plan(locked[account].plan)


def full(resource: str, words: str, limit: int, used: int) -> Refusal:
    """The 403 of a plan that has no room: `resource` for programs, `words` for people."""
    sentence = (
        f"This account has {used} of the {limit} {words} that its plan includes. Make room, or move to a larger one."
    )
    if limit == 0:
        sentence = f"This account's plan includes no {words}. Move to a larger one."
    return Refusal(ErrorType.PLAN_LIMIT_REACHED, sentence, resource=resource, limit=limit, used=used)
