"""Combine an account's plan with its individual agreement. Pure."""

from msgspec import Struct

from engine.base.plans import CAPS, MAX_SEGMENTS, Caps, Plan, layouts_of


class PlanCap(Struct, frozen=True):
    """A plan's limit for one kind of resource; None is unlimited."""

    resource: str
    limit: int | None


def retention_days(plan: Plan, agreed: int | None) -> int:
    """Return the days for which records are kept; an agreement can only lengthen the plan's time."""
    return max(CAPS[plan].retention_days, agreed or 0)


def shown_caps(held: Caps, *, monthly_limit: int, below: bool) -> list[PlanCap]:
    """Return the limits of an account or plan by the resource names that refusals use.

    The monthly limit also bounds scheduled messages. `below`: the account is a sub-account and can't have any itself.
    """
    return [
        PlanCap("api_keys", held.api_keys),
        PlanCap("domains", held.sending_domains),
        PlanCap("streams", held.streams),
        PlanCap("templates", held.templates),
        PlanCap("layouts", layouts_of(held)),
        PlanCap("webhooks", held.webhooks),
        PlanCap("seats", held.seats),
        PlanCap("sub_accounts", 0 if below else held.sub_accounts),
        PlanCap("scheduled_messages", monthly_limit),
        PlanCap("inbound_addresses", held.inbound_addresses),
        PlanCap("received_messages", held.monthly_received),
        PlanCap("contacts", held.contacts),
        PlanCap("lists", held.lists),
        PlanCap("segments", MAX_SEGMENTS),
        PlanCap("verifications", held.monthly_verifications),
        PlanCap("address_checks", held.monthly_address_checks),
    ]
