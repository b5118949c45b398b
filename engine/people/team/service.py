"""Remove members, and end the invitations of a person who may not send them any more.

Called within the transactions that change members.
"""

from uuid import UUID

from engine.base import ids
from engine.base.events import AccountEvent
from engine.base.roles import Role
from engine.ledger.events import record_event
from engine.people.team import rules, store
from engine.store.queries import Conn


async def end_invitations(connection: Conn, account: UUID, user: UUID | None, role: Role | None, *, actor: str) -> int:
    """Delete the person's pending invitations that `role` may not send (None: they are no member), with an event each.

    `user` None: everybody's. Returns how many. The caller has locked the head of the account.
    """
    kept = [one.value for one in rules.invitable(role)]
    ended = await store.END_INVITES_OF.records(connection, account, user, kept)
    for row in ended:
        detail = {"id": ids.format_id(ids.Kind.INVITE, row["id"])}
        await record_event(connection, account, AccountEvent.MEMBER_INVITE_REVOKED, detail, actor=actor)
    return len(ended)


async def remove_member(connection: Conn, account: UUID, user: UUID, role: str, *, actor: str) -> None:
    """Remove a member with their sessions and invitations there, and record it.

    The caller has locked the head of the account.
    """
    await store.REMOVE_MEMBER.execute(connection, account, user)
    await end_invitations(connection, account, user, None, actor=actor)
    detail = {"id": ids.format_id(ids.Kind.USER, user), "role": role}
    await record_event(connection, account, AccountEvent.MEMBER_REMOVED, detail, actor=actor)


async def hold_below(connection: Conn, parent: UUID, user: UUID) -> None:
    """Lock the memberships and sessions of a person in the sub-accounts; the account heads must be locked later."""
    for row in await store.BELOW.records(connection, parent, user):
        await store.hold(connection, row["account_id"], user)


async def part_below(connection: Conn, parent: UUID, user: UUID, *, actor: str) -> None:
    """Remove a person from the sub-accounts of an account in which they are no admin any more."""
    for row in await store.BELOW.records(connection, parent, user):
        await remove_member(connection, row["account_id"], user, row["role"], actor=actor)
