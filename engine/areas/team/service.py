"""End the invitations of a person who may not send them any more: removed from the account, or with a lower role.

Called by the flows that change members.
"""

from uuid import UUID

from engine.areas.team import rules, store
from engine.base import ids
from engine.base.events import AccountEvent
from engine.base.roles import Role
from engine.ledger.events import record_event
from engine.store.queries import Conn


async def end_invitations(connection: Conn, account: UUID, user: UUID, role: Role | None, *, actor: str) -> None:
    """Delete the person's pending invitations that `role` may not send (None: they are no member), with an event each.

    The caller has locked the head of the account.
    """
    kept = [one.value for one in rules.invitable(role)]
    for row in await store.END_INVITES_OF.records(connection, account, user, kept):
        detail = {"id": ids.format_id(ids.Kind.INVITE, row["id"])}
        await record_event(connection, account, AccountEvent.MEMBER_INVITE_REVOKED, detail, actor=actor)
