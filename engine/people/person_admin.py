"""The operator's help for a person who is locked out, or whose account an intruder uses, and who else operates.

Called by `ops person`.
"""

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.ledger.platform_log import record_platform_change
from engine.people.open_session import end_others
from engine.people.people import rules
from engine.people.people import store as people
from engine.people.people.service import record_person_event
from engine.people.people.store import Membership, PersonRow
from engine.people.second_factor import store as factors
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose
from engine.store.queries import Conn

OPERATOR = "operator"


class PersonWithAccounts(Struct, frozen=True):
    """A person and the accounts they belong to."""

    person: PersonRow
    memberships: list[Membership]


async def find(pool: asyncpg.Pool, email: str) -> PersonWithAccounts | None:
    """Return the person with an address, or None; raises Refusal for an invalid address."""
    person = await people.FIND.first(pool, rules.checked_email(email))
    return None if person is None else PersonWithAccounts(person, await people.MEMBERSHIPS.fetch(pool, person.id))


async def drop_second_factor(pool: asyncpg.Pool, person: PersonRow) -> bool:
    """Remove the person's second factor, end all their sessions and mail them; return False if they had none.

    Passkeys stay; a person who lost those too resets the password by mail and removes them.
    """
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, person.id)
        if not await factors.DISABLE.records(connection, person.id):
            return False
        await factors.DROP_CODES.execute(connection, person.id)
        await factors.FORGET_FAILURES.execute(connection, person.id, None)
        await end_others(connection, person.id, None)
        await enqueue(connection, SystemMailKind.SECOND_FACTOR_DISABLED, person.email, at=clock.now())
        await _tell(connection, person, AccountEvent.MEMBER_SECOND_FACTOR_DISABLED, {})
    return True


async def sign_out(pool: asyncpg.Pool, person: PersonRow) -> int:
    """End all sessions of the person and invalidate their sign-in link; return the number of sessions."""
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, person.id)
        ended = (await end_others(connection, person.id, None)).total()
        await tokens.burn_all(connection, person.id, [Purpose.SIGN_IN])
        await _tell(connection, person, AccountEvent.MEMBER_SIGNED_OUT, {"sessions": ended})
    return ended


async def confirm_operator(pool: asyncpg.Pool, person: PersonRow) -> None:
    """Make the person an operator, while the setting names their address. Idempotent.

    Raises 409 if their address is not verified, or by the link alone: a stranger may have set their password.
    """
    async with pool.acquire() as connection, connection.transaction():
        now = await people.LOCK.first(connection, person.id)
        if now is None or now.email_verified_at is None or now.verified_by_link:
            raise Refusal(
                ErrorType.INVALID_STATE,
                f"The mailbox {person.email} isn't proven to be this person's. Set a new password by email "
                "(/forgot-password), which removes other ways to sign in, then retry.",
                state="unconfirmed",
            )
        if not now.is_operator:
            await people.SET_OPERATOR.execute(connection, person.id, clock.now())
            await _record_operator(connection, person, "operator.confirmed")


async def revoke_operator(pool: asyncpg.Pool, person: PersonRow) -> None:
    """Make the person no operator any more. Idempotent."""
    async with pool.acquire() as connection, connection.transaction():
        now = await people.LOCK.first(connection, person.id)
        if now is not None and now.is_operator:
            await people.SET_OPERATOR.execute(connection, person.id, None)
            await _record_operator(connection, person, "operator.revoked")


async def _record_operator(connection: Conn, person: PersonRow, action: str) -> None:
    await record_platform_change(connection, action, {"id": ids.format_id(ids.Kind.USER, person.id)})


async def _tell(connection: Conn, person: PersonRow, kind: AccountEvent, detail: dict[str, object]) -> None:
    await record_person_event(connection, person.id, kind, detail, actor=OPERATOR)
