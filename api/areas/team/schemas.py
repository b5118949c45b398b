"""Requests and replies of the team."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.base.roles import Role
from engine.people.people.rules import MAX_EMAIL, MAX_PASSWORD
from engine.people.tokens.rules import MAX_LENGTH


class Member(Struct, rename="camel"):
    """A person on the account.

    `name` is the display name, if set; `twoFactor`: signing in with the password takes a code too.
    """

    id: str
    email: str
    name: str | None
    role: Role
    email_verified: bool
    two_factor: bool
    joined_at: str


class Invite(Struct, rename="camel"):
    """A pending invitation. `invitedBy` is null if that person's record no longer exists."""

    id: str
    email: str
    role: Role
    invited_by: str | None
    created_at: str
    expires_at: str


class Seats(Struct):
    """The seats of the plan; pending invitations count as used. `limit` is null where the plan sets none."""

    limit: int | None
    used: int


class Team(Struct, rename="camel"):
    """Members and invitations, newest first. `nextCursor` leads to more members; it is null on the last page."""

    members: list[Member]
    invites: list[Invite]
    seats: Seats
    next_cursor: str | None


class NewInvite(Struct, forbid_unknown_fields=True):
    """An invitation for `POST /v1/team/invites`; a second one to an address replaces the first."""

    email: Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL)]
    role: Role = Role.MEMBER


class RoleChange(Struct, forbid_unknown_fields=True):
    """The new role of a member.

    Changing your own role renews the session: the reply sets its cookie, and its new CSRF token is in the header
    `X-CSRF-Token`.
    """

    role: Role


class OwnershipTransfer(Struct, forbid_unknown_fields=True, rename="camel"):
    """The member who becomes the owner, for `POST /v1/team/transfer`.

    `password` is your current one; a sign-in within the last ten minutes makes it unnecessary. You become an admin,
    which renews the session as a change of your own role does.
    """

    member_id: Annotated[str, Meta(max_length=100)]
    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)] | None = None


class Owners(Struct):
    """The owner after a transfer, and the former one, now an admin."""

    owner: Member
    former: Member


class Acceptance(Struct, forbid_unknown_fields=True):
    """The token of an invitation, for `POST /v1/team/invites/accept`, with the password of the person.

    A new person chooses it here. Leave it out in a session of the invited address.
    """

    token: Annotated[str, Meta(min_length=1, max_length=MAX_LENGTH)]
    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)] | None = None
