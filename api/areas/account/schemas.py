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


class Cap(Struct):
    """How many of a thing the plan includes and the account holds; the names are those of `plan_limit_reached`.

    `limit` is null where the plan sets none.
    """

    resource: str
    limit: int | None
    used: int


class Me(Struct, rename="camel", kw_only=True):
    """The account behind a key.

    `retentionDays`: how long messages, events and the log are kept. `scheduleDays`: how far ahead a message may be
    scheduled. `analyticsDays`: how far back delivery analytics reach. `requestsPerSecond`: for each key.
    """

    id: str
    name: str
    plan: Plan
    status: Literal["active", "suspended", "closing"]
    created_at: str
    parent_id: str | None
    sending: Sending
    retention_days: int
    schedule_days: int
    analytics_days: int
    requests_per_second: int
    limits: list[Cap]
