"""Open, renew and end sessions, after any way of proving who a person is.

Each function that takes a pool is one transaction. The caller has verified password, passkey or identity, and the
second factor if there is one. Lock order: the person first, then memberships, sessions and account heads, so that
transactions on the same person cannot deadlock.
"""

import os
from collections import Counter
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.secrets import Pepper
from engine.ledger.events import record_event
from engine.people.people import store as people
from engine.people.people.store import PersonRow
from engine.people.sessions import rules, store
from engine.people.sessions.rules import Device
from engine.people.tokens import store as tokens
from engine.store.database_errors import ForeignKeyViolation
from engine.store.jobs import Job
from engine.store.queries import Conn

MAX_FORGOTTEN = 5_000


class Outdated(Exception):  # noqa: N818 - named for what was proven
    """The person's password or second factor has changed since it was checked."""


class NewSession(Struct, frozen=True):
    """A session when created or renewed, the only time that its secret is known."""

    id: UUID
    account_id: UUID
    secret: str
    csrf: str


async def open_session(
    pool: asyncpg.Pool,
    pepper: Pepper,
    user: UUID,
    *,
    method: str,
    device: Device,
    account: UUID | None = None,
    proven: PersonRow | None = None,
) -> NewSession:
    """Sign a person in to an account: the given one, else the one they used last, else their newest.

    Raises 403 if they belong to none. `method` is `password`, `passkey`, `identity`…, with `+totp` after a code.
    `proven` is the person as their password was checked; raises Outdated if password or second factor have changed
    since. Every change of these locks the person and ends existing sessions, so no session survives one.
    """
    async with pool.acquire() as connection, connection.transaction():
        return await open_in(connection, pepper, user, method=method, device=device, account=account, proven=proven)


async def open_in(
    connection: Conn,
    pepper: Pepper,
    user: UUID,
    *,
    method: str,
    device: Device,
    account: UUID | None = None,
    proven: PersonRow | None = None,
) -> NewSession:
    """Sign a person in as `open_session` does, in the caller's transaction, which must not hold an account head yet."""
    at = clock.now()
    now = await people.LOCK.first(connection, user)
    if proven is not None and (
        now is None or (now.password_hash, now.has_totp) != (proven.password_hash, proven.has_totp)
    ):
        raise Outdated
    if now is None:
        raise _nowhere()
    memberships = await people.MEMBERSHIPS.fetch(connection, user)
    chosen = next((one for one in memberships if account in (None, one.account_id)), None)
    if chosen is None:
        raise _nowhere()
    made = _fresh(pepper, ids.uuid7(), chosen.account_id)
    digest = rules.digest_of(pepper, made.secret)
    try:
        await store.INSERT.execute(
            connection, made.id, digest, user, chosen.account_id, method, device.address, device.agent, at,
            at + rules.ABSOLUTE,
        )  # fmt: skip
    except ForeignKeyViolation:  # removed from the account since the read above
        raise _nowhere() from None
    await people.SIGNED_IN_TO.execute(connection, user, chosen.account_id)
    person = ids.format_id(ids.Kind.USER, user)
    await record_event(
        connection, chosen.account_id, AccountEvent.MEMBER_SIGNED_IN,
        {"id": person, "session": ids.format_id(ids.Kind.SESSION, made.id), "method": method}, actor=person,
    )  # fmt: skip
    return made


async def renew_session(connection: Conn, pepper: Pepper, session: UUID, account: UUID) -> NewSession:
    """Give the session a new secret, as after every change of privileges; the old one is invalid after the commit."""
    made = _fresh(pepper, session, account)
    if not await store.ROTATE.records(connection, session, rules.digest_of(pepper, made.secret), clock.now()):
        raise ended()
    return made


async def switch_account(pool: asyncpg.Pool, pepper: Pepper, session: UUID, user: UUID, account: UUID) -> NewSession:
    """Move the session to another account of its person, with a new secret; raises 404 if they do not belong to it."""
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, user)
        memberships = await people.MEMBERSHIPS.fetch(connection, user)
        if account not in {one.account_id for one in memberships}:
            raise not_found("account")
        made = _fresh(pepper, session, account)
        try:
            digest = rules.digest_of(pepper, made.secret)
            moved = await store.MOVE.records(connection, session, account, digest, clock.now())
        except ForeignKeyViolation:
            raise not_found("account") from None
        if not moved:
            raise ended()
        await people.SIGNED_IN_TO.execute(connection, user, account)
        person = ids.format_id(ids.Kind.USER, user)
        detail = {"id": person, "session": ids.format_id(ids.Kind.SESSION, session), "method": "switch"}
        await record_event(connection, account, AccountEvent.MEMBER_SIGNED_IN, detail, actor=person)
    return made


async def end_others(connection: Conn, user: UUID, keep: UUID | None) -> Counter[UUID]:
    """End all sessions of a person except `keep`; return how many there were per account. Effective at commit."""
    at = clock.now()
    rows = await store.END_OTHERS.records(connection, user, keep, at, at - rules.IDLE)
    return Counter(row["account_id"] for row in rows if row["living"])


async def sign_out(pool: asyncpg.Pool, pepper: Pepper, secret: str) -> None:
    """End a session by its secret; does nothing if it has ended."""
    digests = rules.digests_of(pepper, secret)
    async with pool.acquire() as connection, connection.transaction():
        for row in await store.PERSON_OF.records(connection, digests):
            await people.LOCK.first(connection, row["user_id"])
        ended = await store.END.records(connection, digests, clock.now(), _unused_digest())
        for row in ended:
            person = ids.format_id(ids.Kind.USER, row["user_id"])
            session = ids.format_id(ids.Kind.SESSION, row["id"])
            detail = {"id": person, "session": session}
            await record_event(connection, row["account_id"], AccountEvent.MEMBER_SIGNED_OUT, detail, actor=person)


async def remember(connection: Conn, user: UUID, device: Device) -> None:
    """Record the person's network as known, after their mailbox proved them, without signing them in.

    So a stranger who uses up the tries for their address cannot lock them out before their next session.
    """
    at = clock.now()
    await store.REMEMBER.execute(connection, ids.uuid7(), user, _unused_digest(), device.address, device.agent, at)


async def revoke_one(pool: asyncpg.Pool, user: UUID, session: UUID) -> None:
    """End one session of a person; raises 404 if it is not theirs or has ended."""
    at, person = clock.now(), ids.format_id(ids.Kind.USER, user)
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, user)
        ended = await store.END_ONE.records(connection, user, session, at, at - rules.IDLE)
        if not ended:
            raise not_found("session")
        detail = {"id": person, "session": ids.format_id(ids.Kind.SESSION, session)}
        await record_event(connection, ended[0]["account_id"], AccountEvent.MEMBER_SIGNED_OUT, detail, actor=person)


async def revoke_others(pool: asyncpg.Pool, user: UUID, keep: UUID) -> None:
    """End all other sessions of a person; record their number in the log of each account."""
    person = ids.format_id(ids.Kind.USER, user)
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, user)
        ended = await end_others(connection, user, keep)
        for account in sorted(ended):  # in one order, to avoid deadlocks
            detail = {"id": person, "sessions": ended[account]}
            await record_event(connection, account, AccountEvent.MEMBER_SIGNED_OUT, detail, actor=person)


async def forget_ended(pool: asyncpg.Pool, at: datetime) -> None:
    """Delete expired sessions, tokens and challenges, a bounded number at a time."""
    remembered = at - rules.REMEMBERED
    await store.FORGET.execute(pool, remembered, remembered - rules.IDLE, MAX_FORGOTTEN)
    await tokens.FORGET.execute(pool, at, MAX_FORGOTTEN)
    await people.FORGET_CHALLENGES.execute(pool, at, MAX_FORGOTTEN)


JOB = Job("ended sessions", every_s=300, run=lambda pool, _: forget_ended(pool, clock.now()))


def _fresh(pepper: Pepper, session: UUID, account: UUID) -> NewSession:
    secret = rules.new_secret()
    return NewSession(session, account, secret, rules.csrf_token(pepper, secret))


def _unused_digest() -> bytes:
    """Return a digest that no secret has."""
    return os.urandom(32)


def _nowhere() -> Refusal:
    return Refusal(
        ErrorType.FORBIDDEN, "You no longer belong to any account. Ask an account's owner for an invitation."
    )


def ended() -> Refusal:
    """Return the 401 for a session that has ended since the request began."""
    return Refusal(ErrorType.UNAUTHORIZED, "This session has ended. Sign in again.")
