"""`GET /v1/me`."""

from typing import Literal, cast

from api.areas.account.schemas import Cap, Me, Sending
from api.http.operation import Access, Call, Operation
from engine.areas.account import allowance, rules, store
from engine.areas.api_keys.keyring import unauthorized
from engine.base import clock, ids
from engine.base.plans import CAPS, Plan


async def read_me(call: Call) -> Me:
    """The account, its plan, what it may still send and what else it holds."""
    async with call.services.pool.acquire() as connection:
        account = await store.READ.first(connection, call.account_id)
        if account is None:  # erased since the key was looked up
            raise unauthorized()
        left = await allowance.read(connection, call.account_id, clock.now())
        (used,) = await store.USED.fetch(connection, call.account_id)
    plan = Plan(account.plan)
    return Me(
        id=ids.format_id(ids.Kind.ACCOUNT, account.id),
        name=account.name,
        plan=plan,
        status=cast("Literal['active', 'suspended', 'closing']", account.status),
        created_at=clock.iso(account.created_at),
        parent_id=None if account.parent_id is None else ids.format_id(ids.Kind.ACCOUNT, account.parent_id),
        sending=Sending(
            daily_limit=left.daily_limit,
            sent_today=left.sent_today,
            remaining_today=left.remaining_today,
            warmup_tier=left.rung,
            monthly_limit=left.monthly_limit,
            sent_this_month=left.sent_this_month,
            remaining_this_month=left.remaining_this_month,
        ),
        retention_days=rules.retention_days(plan, account.retention_days),
        schedule_days=CAPS[plan].schedule_days,
        analytics_days=CAPS[plan].analytics_days,
        requests_per_second=call.settings.request_rate or CAPS[plan].requests_per_second,
        limits=[
            Cap(cap.resource, cap.limit, getattr(used, cap.resource))
            for cap in rules.caps(plan, monthly_limit=left.monthly_limit)
        ],
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
