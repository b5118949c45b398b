"""Wire shapes of the team."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.areas.people.rules import MAX_EMAIL, MAX_PASSWORD
from engine.areas.tokens.rules import MAX_LENGTH
from engine.base.roles import Role


class Member(Struct, rename="camel"):
    """A person on the account. `name`: their display name, where they have given one. `twoFactor`: whether signing in
    with their password takes a code besides."""

    id: str
    email: str
    name: str | None
    role: Role
    email_verified: bool
    two_factor: bool
    joined_at: str


class Invite(Struct, rename="camel"):
    """A pending invitation. `invitedBy` is null where that person has no record any more."""

    id: str
    email: str
    role: Role
    invited_by: str | None
    created_at: str
    expires_at: str


class Seats(Struct):
    """Pending invitations count as used. `limit` is null where the plan sets none."""

    limit: int | None
    used: int


class Team(Struct):
    """Members, the longest there first; invitations, the newest first."""

    members: list[Member]
    invites: list[Invite]
    seats: Seats


class NewInvite(Struct, forbid_unknown_fields=True):
    """`POST /v1/team/invites`: a second one to an address replaces the first."""

    email: Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL)]
    role: Role = Role.MEMBER


class RoleChange(Struct, forbid_unknown_fields=True):
    """`PATCH /v1/team/members/{id}`. One's own new role renews the session: its cookie is set again, and its
    new CSRF token stands in `X-CSRF-Token`."""

    role: Role


class Acceptance(Struct, forbid_unknown_fields=True):
    """`POST /v1/team/invites/accept`. The password becomes that of a new person; who has one already gives theirs."""

    token: Annotated[str, Meta(min_length=1, max_length=MAX_LENGTH)]
    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)]
