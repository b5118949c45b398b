"""Who may do what to whom on a team, and how long an invitation holds. Pure."""

from datetime import timedelta

from engine.base.errors import ErrorType, Refusal
from engine.base.roles import Role

INVITE_LIFETIME = timedelta(days=7)
MAX_SHOWN = 5_000  # members, and invitations, in one answer
# Mail that an account can have us send to strangers: invitations an hour to one address, and a day in all.
INVITES_PER_HOUR, INVITES_PER_DAY = 5, 200


def check_invite(actor: Role, wanted: Role) -> None:
    """Only an owner makes owners; 403 `forbidden`."""
    if wanted is Role.OWNER and actor is not Role.OWNER:
        raise Refusal(ErrorType.FORBIDDEN, "Only an owner can invite an owner.")


def check_change(actor: Role, standing: Role, wanted: Role) -> None:
    """Only an owner changes the role of an owner, or makes one; 403 `forbidden`."""
    if Role.OWNER in {standing, wanted} and actor is not Role.OWNER:
        raise Refusal(ErrorType.FORBIDDEN, "Only an owner can make an owner, or change the role of one.")


def check_removal(actor: Role, standing: Role) -> None:
    """Only an owner removes an owner; 403 `forbidden`."""
    if standing is Role.OWNER and actor is not Role.OWNER:
        raise Refusal(ErrorType.FORBIDDEN, "Only an owner can remove an owner.")


def check_owner_left(standing: Role, owners: int) -> None:
    """Somebody else must own the account when a member with this role no longer does; 409 `conflict`.

    `owners` are counted under the lock on the account's head.
    """
    if standing is Role.OWNER and owners <= 1:
        raise Refusal(ErrorType.CONFLICT, "This is the last owner of the account. Make somebody else an owner first.")
