"""Check who may change roles and remove members of an account, and make the cursors of the list. Pure."""

import re
from datetime import datetime, timedelta
from uuid import UUID

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.roles import Role

INVITE_LIFETIME = timedelta(days=7)
MAX_SHOWN = 5_000  # invitations per response
_CURSOR = re.compile(r"(\d{1,17})~(.{1,40})", re.ASCII)
# Limits of invitation mail to strangers: per hour to one address, and per day of one account.
INVITES_PER_HOUR, INVITES_PER_DAY = 5, 200


def cursor(joined_at: datetime, member: UUID) -> str:
    """Return the cursor of the page after a member: the time of joining in microseconds, and the id."""
    return f"{clock.microseconds(joined_at)}~{ids.format_id(ids.Kind.USER, member)}"


def position(text: str) -> tuple[datetime, UUID]:
    """Return the time of joining and the id in a cursor; raise the 400 that names `before`."""
    match = _CURSOR.fullmatch(text)
    try:
        if match is not None:
            return clock.from_microseconds(int(match[1])), ids.parse_id(ids.Kind.USER, match[2])
    except (ids.WrongId, OverflowError):
        pass
    raise invalid("before", f"`before` is {text!r}; pass `nextCursor` of an earlier page.")


def check_invite(actor: Role, wanted: Role) -> None:
    """Raise the 403 unless the actor may invite with this role; only owners invite owners."""
    if wanted is Role.OWNER and actor is not Role.OWNER:
        raise Refusal(ErrorType.FORBIDDEN, "Only an owner can invite an owner. Ask an owner of the account.")


def invitable(role: Role | None) -> tuple[Role, ...]:
    """Return the roles with which a member of this role may invite; None: no member."""
    if role is None or not role.includes(Role.ADMIN):
        return ()
    return tuple(one for one in Role if role is Role.OWNER or one is not Role.OWNER)


def check_change(actor: Role, current: Role, wanted: Role) -> None:
    """Raise the 403 unless the actor may make this change; only owners change roles from or to owner."""
    if Role.OWNER in {current, wanted} and actor is not Role.OWNER:
        raise Refusal(
            ErrorType.FORBIDDEN, "Only an owner can change a role from or to owner. Ask an owner of the account."
        )


def check_removal(actor: Role, current: Role) -> None:
    """Raise the 403 if someone other than an owner removes an owner."""
    if current is Role.OWNER and actor is not Role.OWNER:
        raise Refusal(ErrorType.FORBIDDEN, "Only an owner can remove an owner. Ask an owner of the account.")


def check_transfer(actor: Role) -> None:
    """Raise the 403 unless the actor is an owner now."""
    if actor is not Role.OWNER:
        raise Refusal(ErrorType.FORBIDDEN, "Only an owner can transfer the account. Ask an owner of the account.")


def check_new_owner(current: Role) -> None:
    """Raise the 409 if the person is an owner already; the caller is one too."""
    if current is Role.OWNER:
        raise Refusal(
            ErrorType.CONFLICT,
            "This person is an owner already. Transfer the account to an admin or member, or change your own role.",
        )


def check_owner_left(current: Role, owners: int) -> None:
    """Raise the 409 if the last owner would lose that role.

    `owners` must be counted under the lock on the account head.
    """
    if current is Role.OWNER and owners <= 1:
        raise Refusal(
            ErrorType.CONFLICT, "This person is the last owner of the account. Make another member an owner first."
        )
