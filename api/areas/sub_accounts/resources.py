"""Sub-accounts, read and changed by signed-in persons of the parent account, never with an API key."""

from typing import Literal, cast

from api.areas.sub_accounts.schemas import SubAccount, SubAccountChange, SubAccountIn, SubAccountPage
from api.http.operation import Access, Area, Call, Operation
from api.http.paging import Page
from engine.accounts.sub_accounts import members as sub_account_members
from engine.accounts.sub_accounts import service as sub_accounts
from engine.accounts.sub_accounts import store
from engine.accounts.sub_accounts.service import SubAccountPatch
from engine.accounts.sub_accounts.store import SubAccountRow
from engine.base import clock, ids
from engine.base.errors import ErrorType, existing
from engine.base.roles import Role


async def list_sub_accounts(call: Call, page: Page) -> SubAccountPage:
    """Return a page of the account's sub-accounts."""
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, page.probe)
    return SubAccountPage(*page.of(rows, _shown))


async def create_sub_account(call: Call, body: SubAccountIn) -> SubAccount:
    """Open a sub-account."""
    row = await sub_accounts.open_sub_account(
        call.services.pool, call.account_id, name=body.name, monthly_limit=body.monthly_limit, actor=call.actor
    )
    return _shown(row)


async def read_sub_account(call: Call) -> SubAccount:
    """Return one sub-account."""
    row = existing(await store.READ.first(call.services.pool, call.account_id, call.id), "sub-account")
    return _shown(row)


async def change_sub_account(call: Call, body: SubAccountChange) -> SubAccount:
    """Rename, limit, suspend or resume a sub-account."""
    change = SubAccountPatch(name=body.name, status=body.status, monthly_limit=body.monthly_limit)
    row = await sub_accounts.change_sub_account(call.services.pool, call.account_id, call.id, change, actor=call.actor)
    return _shown(row)


async def delete_sub_account(call: Call) -> None:
    """Stop a sub-account now and erase it 14 days later."""
    await sub_accounts.delete_sub_account(call.services.pool, call.account_id, call.id, actor=call.actor)


async def join_sub_account(call: Call) -> None:
    """Add the caller to a sub-account as admin."""
    await sub_account_members.join(call.services.pool, call.person, call.id)


def _shown(row: SubAccountRow) -> SubAccount:
    today = clock.now().date()
    return SubAccount(
        id=ids.format_id(ids.Kind.ACCOUNT, row.id),
        name=row.name,
        status=cast("Literal['active', 'suspended']", row.status),
        suspended_by=cast("list[Literal['parent', 'inherited', 'rates', 'operator']]", row.causes),
        monthly_limit=row.monthly_cap,
        sent_this_month=row.sent_in(today),
        daily_limit=row.daily_limit,
        sent_today=row.sent_on(today),
        created_at=clock.iso(row.created_at),
        deletion_scheduled_for=clock.iso_or_none(row.due_at),
    )


_ADMINS = Area("Sub-accounts", access=Access.SESSION, role=Role.ADMIN, id_of=ids.Kind.ACCOUNT, noun="sub-account")
OPERATIONS = (
    Operation(
        "GET", "/v1/sub-accounts", list_sub_accounts, "List sub-accounts", _ADMINS, page=ids.Kind.ACCOUNT, lagging=True
    ),
    Operation(
        "POST",
        "/v1/sub-accounts",
        create_sub_account,
        "Open a sub-account",
        _ADMINS,
        success=201,
        refusals=(ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation("GET", "/v1/sub-accounts/{id}", read_sub_account, "Read a sub-account", _ADMINS),
    Operation(
        "PATCH",
        "/v1/sub-accounts/{id}",
        change_sub_account,
        "Rename, limit, suspend or resume a sub-account, or cancel its deletion",
        _ADMINS,
        refusals=(ErrorType.INVALID_STATE, ErrorType.PLAN_LIMIT_REACHED),
    ),
    Operation(
        "DELETE",
        "/v1/sub-accounts/{id}",
        delete_sub_account,
        "Stop a sub-account and erase it 14 days later",
        _ADMINS,
        role=Role.OWNER,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST",
        "/v1/sub-accounts/{id}/join",
        join_sub_account,
        "Become an admin of a sub-account",
        _ADMINS,
        note="Afterwards `POST /v1/auth/switch` works with its id. The membership uses a seat of the "
        "sub-account, and ends with the role of admin on the account above. Repeating it changes nothing.",
        refusals=(ErrorType.PLAN_LIMIT_REACHED,),
    ),
)
