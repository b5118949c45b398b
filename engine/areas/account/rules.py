"""What an account's plan and its agreement come to. Pure."""

from msgspec import Struct

from engine.base.plans import CAPS, Plan


class PlanCap(Struct, frozen=True):
    """How many of a thing a plan includes; None is unlimited."""

    resource: str
    limit: int | None


def retention_days(plan: Plan, agreed: int | None) -> int:
    """How long records are kept: an agreement can only lengthen what the plan says."""
    return max(CAPS[plan].retention_days, agreed or 0)


def caps(plan: Plan, *, monthly_limit: int, below: bool) -> list[PlanCap]:
    """The caps of a plan by the names that refusals give them; a month's allowance bounds what may wait for a date.

    `below`: it is a sub-account, and has none of its own.
    """
    held = CAPS[plan]
    return [
        PlanCap("api_keys", held.api_keys),
        PlanCap("domains", held.sending_domains),
        PlanCap("streams", held.streams),
        PlanCap("templates", held.templates),
        PlanCap("webhooks", held.webhooks),
        PlanCap("seats", held.seats),
        PlanCap("sub_accounts", 0 if below else held.sub_accounts),
        PlanCap("scheduled_messages", monthly_limit),
    ]
