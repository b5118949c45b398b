"""End the access that a stranger may have given away in the accounts of an unproven person.

An API key, a webhook endpoint, an invitation or another member outlives password and sessions. Once the owner of the
mailbox arrives (`unproven_access`), all that exists until then ends, in the sub-accounts too.
"""

from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids
from engine.events.webhooks import service as webhooks
from engine.ledger import heads
from engine.people.api_keys import service as api_keys
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.team import service as team
from engine.people.team import store as team_store
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "unproven_accounts.sql")
_OWNED = _SQL.command("owned_accounts")
_OTHERS = _SQL.command("other_members")
_KEYS = _SQL.command("live_keys")
_ENDPOINTS = _SQL.command("endpoints")


class EndedAccess(Struct, frozen=True):
    """The numbers of what was ended in a person's accounts."""

    api_keys: int = 0
    webhooks: int = 0
    invitations: int = 0
    members: int = 0

    def detail(self) -> dict[str, object]:
        """Return the numbers for the account log."""
        return {
            "keys_revoked": self.api_keys, "webhooks_deleted": self.webhooks,
            "invitations_revoked": self.invitations, "members_removed": self.members,
        }  # fmt: skip

    def words(self) -> str:
        """Return the numbers for a mail: `1 API key, 2 webhook endpoints`; "" if nothing was ended."""
        named = (
            (self.api_keys, "API key"), (self.webhooks, "webhook endpoint"),
            (self.invitations, "invitation"), (self.members, "other member"),
        )  # fmt: skip
        return ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in named if number)


async def end_access(connection: Conn, user: UUID) -> EndedAccess:
    """Revoke the keys, delete the webhook endpoints, revoke the invitations and remove the other members of all
    accounts that the person owns and of their sub-accounts, with their events; return how many.

    The caller has locked the person, and calls `caches.clear_here("keys")` after the commit. Removed members get a
    mail.
    """
    actor = ids.format_id(ids.Kind.USER, user)
    names = {row["id"]: row["name"] for row in await _OWNED.records(connection, user)}
    accounts = list(names)
    for row in await _OTHERS.records(connection, user, accounts):
        await team_store.hold(connection, row["account_id"], row["user_id"])
    await heads.lock(connection, accounts)
    keys = await _KEYS.records(connection, accounts)
    for row in keys:
        await api_keys.revoke(connection, row["account_id"], row["id"], actor=actor)
    endpoints = await _ENDPOINTS.records(connection, accounts)
    for row in endpoints:
        await webhooks.remove_within(connection, row["account_id"], row["id"], actor=actor)
    invitations = [await team.end_invitations(connection, one, None, None, actor=actor) for one in accounts]
    others = await _OTHERS.records(connection, user, accounts)
    for row in others:
        account = row["account_id"]
        await team.remove_member(connection, account, row["user_id"], row["role"], actor=actor)
        await enqueue(
            connection, SystemMailKind.MEMBER_REMOVED, row["email"], at=clock.now(), account_name=names[account]
        )
    return EndedAccess(len(keys), len(endpoints), sum(invitations), len(others))
