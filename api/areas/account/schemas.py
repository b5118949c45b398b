"""Wire shapes of the account."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.areas.people import profile
from engine.base.plans import Plan
from engine.flows.people.profile import MAX_NAME


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


class Rename(Struct, forbid_unknown_fields=True):
    """`PATCH /v1/account`."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class Profile(Struct, rename="camel", kw_only=True):
    """What a person says of themselves. `displayName` is shown to others where there is one, in place of `name`.

    Others are the team, and whom they invite. `signatureAddresses`: the addresses that the signature goes under; null
    for all.
    """

    id: str
    email: str
    email_verified: bool
    name: str | None
    display_name: str | None
    timezone: str | None
    signature: str | None
    signature_addresses: list[str] | None


class ProfileChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """`PATCH /v1/profile`: a field that is left out stays, null clears it. `timezone` is an IANA name."""

    name: Annotated[str, Meta(max_length=profile.MAX_NAME)] | UnsetType | None = UNSET
    display_name: Annotated[str, Meta(max_length=profile.MAX_NAME)] | UnsetType | None = UNSET
    timezone: Annotated[str, Meta(max_length=profile.MAX_ZONE)] | UnsetType | None = UNSET
    signature: Annotated[str, Meta(max_length=profile.MAX_SIGNATURE)] | UnsetType | None = UNSET
    signature_addresses: (
        Annotated[list[Annotated[str, Meta(min_length=3, max_length=320)]], Meta(max_length=profile.MAX_ADDRESSES)]
        | UnsetType
        | None
    ) = UNSET
