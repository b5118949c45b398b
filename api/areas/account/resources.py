"""`GET /v1/me`."""

from typing import Literal, cast

from api.areas.account.schemas import Me, Sending
from api.http.operation import Access, Call, Operation
from engine.areas.account import allowance, store
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.plans import Plan


async def read_me(call: Call) -> Me:
    """The account, its plan and what it may still send."""
    async with call.services.pool.acquire() as connection:
        account = await store.READ.first(connection, call.account_id)
        if account is None:
            raise not_found("account")
        left = await allowance.read(connection, call.account_id, clock.now())
    return Me(
        ids.format_id(ids.Kind.ACCOUNT, account.id),
        account.name,
        Plan(account.plan),
        cast("Literal['active', 'suspended', 'closing']", account.status),
        clock.iso(account.created_at),
        Sending(
            daily_limit=left.daily_limit,
            sent_today=left.sent_today,
            remaining_today=left.remaining_today,
            warmup_tier=left.rung,
            monthly_limit=left.monthly_limit,
            sent_this_month=left.sent_this_month,
            remaining_this_month=left.remaining_this_month,
        ),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/me",
        tag="Account",
        summary="The account, its plan and its sending allowance",
        access=Access.KEY,
        scopes=("account:read",),
        reply=Me,
        handler=read_me,
    ),
)
