"""Scheduling, reading and cancelling the deletion of the caller's account."""

from typing import Literal

from api.areas.account_deletion.schemas import Deletion, DeletionIn
from api.http import auth
from api.http.operation import Access, Area, Call, Operation
from engine.accounts.account_deletion import close_account, store
from engine.base import clock
from engine.base.errors import ErrorType
from engine.base.roles import Role


async def request_deletion(call: Call, body: DeletionIn) -> Deletion:
    """Schedule the deletion of the account in 14 days; a second request keeps the date."""
    await close_account.prove(call.services, call.person, body.password, auth.device(call.request))
    return _shown(await close_account.schedule(call.services.pool, call.account_id, actor=call.actor))


async def read_deletion(call: Call) -> Deletion:
    """Return whether the account's deletion is scheduled, and its date."""
    return _shown(await store.READ.first(call.services.pool, call.account_id))


async def cancel_deletion(call: Call) -> None:
    """Cancel the deletion of the account."""
    await close_account.cancel(call.services.pool, call.account_id, actor=call.actor)


def _shown(found: store.DeletionRow | None) -> Deletion:
    if found is None:
        return Deletion("none")
    status: Literal["scheduled", "erasing"] = "scheduled" if found.began_at is None else "erasing"
    return Deletion(status, clock.iso(found.requested_at), clock.iso(found.due_at))


_OWNERS = Area("Account", access=Access.SESSION, role=Role.OWNER)
_PEOPLE = Area("Account", access=Access.SESSION)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/account/deletion",
        request_deletion,
        "Schedule the deletion of the account in 14 days",
        _OWNERS,
        success=202,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_STATE, ErrorType.NOT_FOUND),
        open_to_suspended=True,
    ),
    Operation("GET", "/v1/account/deletion", read_deletion, "Read the state of the account's deletion", _PEOPLE),
    Operation(
        "DELETE",
        "/v1/account/deletion",
        cancel_deletion,
        "Cancel the deletion of the account",
        _OWNERS,
        refusals=(ErrorType.NOT_FOUND, ErrorType.INVALID_STATE),
        open_to_suspended=True,
    ),
)
