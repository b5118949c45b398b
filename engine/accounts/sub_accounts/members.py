"""Let owners and admins of an account join its sub-accounts, as admins there."""

from uuid import UUID

import asyncpg

from engine.accounts.sub_accounts import store
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.roles import Role
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached
from engine.people.people import store as people
from engine.people.sessions.session_auth import Person
from engine.people.team import store as team


async def join(pool: asyncpg.Pool, person: Person, child: UUID) -> None:
    """Add the caller to a sub-account of their account as admin. Idempotent.

    Raises 404 for any other account, 403 for a caller who is no admin any more or if the sub-account has no seat left.
    """
    parent, user = person.account_id, person.user_id
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, user)  # people before heads
        if await store.READ.first(connection, parent, child) is None:
            raise not_found("sub-account")
        locked = await heads.lock(connection, [parent, child])
        standing = await team.MEMBER.first(connection, parent, user)
        if standing is None or not Role(standing.role).includes(Role.ADMIN) or child not in locked:
            raise Refusal(ErrorType.FORBIDDEN, "This operation requires the role admin or higher on the account.")
        at = clock.now()
        if await team.MEMBER.first(connection, child, user) is not None:
            return
        limit = locked[child].caps.seats
        used = sum(await team.seats_used(connection, child, at))
        if limit is not None and used >= limit:
            raise limit_reached("seats", "team seats (pending invitations count)", limit, used)
        await team.ADD_MEMBER.execute(connection, child, user, Role.ADMIN.value, at)
        actor = ids.format_id(ids.Kind.USER, user)
        detail = {"id": actor, "role": Role.ADMIN.value}
        below = ids.format_id(ids.Kind.ACCOUNT, child)
        await record_event(connection, child, AccountEvent.MEMBER_JOINED, detail, actor=actor)
        joined = {"id": below, "member": actor, "role": Role.ADMIN.value}
        await record_event(connection, parent, AccountEvent.SUB_ACCOUNT_MEMBER_JOINED, joined, actor=actor)
