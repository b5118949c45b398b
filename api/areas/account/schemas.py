"""Wire shapes of the account."""

from typing import Literal

from msgspec import Struct

from engine.base.plans import Plan


class Sending(Struct, rename="camel"):
    """What the account may send, by UTC day and calendar month. `warmupTier` is the rung of the daily ladder."""

    daily_limit: int
    sent_today: int
    remaining_today: int
    warmup_tier: int
    monthly_limit: int
    sent_this_month: int
    remaining_this_month: int


class Me(Struct, rename="camel"):
    """The account behind a key."""

    id: str
    name: str
    plan: Plan
    status: Literal["active", "suspended", "closing"]
    created_at: str
    sending: Sending
