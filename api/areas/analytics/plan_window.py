"""Check that a caller asks for no more days of analytics than the account's plan shows."""

from api.http.operation import Call
from engine.base.errors import ErrorType, Refusal, existing, invalid
from engine.ledger import heads
from engine.receiving.analytics import rules


async def check_days(call: Call, days: int) -> None:
    """Raise the 400 for more days than are ever kept, and the refusal for more than the plan includes."""
    head = existing(await heads.READ.first(call.services.pool, call.account_id), "account")
    limit = head.caps.analytics_days
    if days > max(limit, rules.MAX_DAYS):
        raise invalid("days", f"`days` is {days}; ask for 1 to {max(limit, rules.MAX_DAYS)} days.")
    if days > limit:
        raise Refusal(
            ErrorType.PLAN_LIMIT_REACHED,
            f"`days` is {days}; your plan includes {limit} days of analytics. Request fewer days, or upgrade "
            "your plan.",
            resource="analytics_days",
            limit=limit,
            used=days,
        )
