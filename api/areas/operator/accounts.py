"""`/v1/operator/accounts`: search accounts, suspend and resume them, set their plans."""

from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from api.areas.operator.operation import CONFLICTS, OPERATORS, actor_of, refusing
from api.areas.operator.schemas import AccountAgreement, AccountPlan, AccountsQuery, AccountSuspension, AgreedCapsChange
from api.http.operation import Call, Operation
from api.http.paging import Page
from engine.accounts import account_admin
from engine.accounts.account_admin import ListedAccountPage, OperatorAccount
from engine.accounts.billing import plan_admin
from engine.accounts.suspend import checked_reason
from engine.base import ids
from engine.base.text import checked_line

_LOGGED: Final = "The account's log names the operator."


async def search(call: Call, query: AccountsQuery, page: Page) -> ListedAccountPage:
    """Return a page of accounts."""
    text = None if query.search is None else checked_line(query.search, "search", 254)
    return await account_admin.search(
        call.services.pool, text=text, status=query.status, before=page.before, limit=page.limit
    )


async def show(call: Call) -> OperatorAccount:
    """Return one account, or the remains of an erased one."""
    return await account_admin.show(call.services.pool, call.id)


async def suspend(call: Call, body: AccountSuspension) -> OperatorAccount:
    """Suspend an account and its sub-accounts."""
    with refusing("reason"):
        reason = checked_reason(body.reason)
    return await account_admin.suspend(call.services.pool, call.id, reason=reason, actor=actor_of(call))


async def resume(call: Call) -> OperatorAccount:
    """End the suspensions by the automatic rule and by the operator."""
    return await account_admin.resume(call.services.pool, call.id, actor=actor_of(call))


async def set_plan(call: Call, body: AccountPlan) -> OperatorAccount:
    """Set the plan of an account that has no subscription."""
    await plan_admin.set_plan(call.services.pool, call.id, body.plan, actor=actor_of(call))
    return await account_admin.show(call.services.pool, call.id)


async def agree(call: Call, body: AccountAgreement) -> OperatorAccount:
    """Give an account a plan that is billed elsewhere, or end that."""
    account, services = call.id, call.services
    await plan_admin.agree(
        services.pool, services.billing, account, body.plan, _figures(body.caps), actor=actor_of(call)
    )
    return await account_admin.show(services.pool, account)


def _figures(caps: AgreedCapsChange | UnsetType) -> dict[str, int | None]:
    return {} if caps is UNSET else {name: figure for name, figure in asdict(caps).items() if figure is not UNSET}


OPERATIONS = (
    Operation(
        "GET",
        "/v1/operator/accounts",
        search,
        "Search accounts, or list the newest",
        OPERATORS,
        page=ids.Kind.ACCOUNT,
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/operator/accounts/{id}",
        show,
        "Show an account, or what remains of an erased one",
        OPERATORS,
        id_of=ids.Kind.ACCOUNT,
    ),
    Operation(
        "POST",
        "/v1/operator/accounts/{id}/suspend",
        suspend,
        "Suspend an account and its sub-accounts",
        OPERATORS,
        id_of=ids.Kind.ACCOUNT,
        refusals=CONFLICTS,
        note=f"Keys stop working, queued mail is held, members can only read. {_LOGGED}",
    ),
    Operation(
        "POST",
        "/v1/operator/accounts/{id}/resume",
        resume,
        "Resume a suspended account and deliver its held mail",
        OPERATORS,
        id_of=ids.Kind.ACCOUNT,
        note=f"Its bounces and complaints up to now no longer count. {_LOGGED}",
    ),
    Operation(
        "POST",
        "/v1/operator/accounts/{id}/plan",
        set_plan,
        "Set the plan of an account that has no subscription",
        OPERATORS,
        id_of=ids.Kind.ACCOUNT,
        refusals=CONFLICTS,
        note=f"Its limits apply at once; nothing is deleted. A 409 while a subscription exists. {_LOGGED}",
    ),
    Operation(
        "POST",
        "/v1/operator/accounts/{id}/agreement",
        agree,
        "Give an account a plan that is billed outside of Waybill, or end that",
        OPERATORS,
        id_of=ids.Kind.ACCOUNT,
        refusals=CONFLICTS,
        note="It replaces any subscription; without an agreement its end is a 409. Raised limits apply at once, "
        f"for sub-accounts too, and end with the agreement. {_LOGGED}",
    ),
)
