"""Requests and replies of the account and the profile."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.base.plans import Plan
from engine.people.change_profile import MAX_NAME
from engine.people.people import profile


class Sending(Struct, rename="camel"):
    """The number of messages that the account may send, by UTC day and calendar month.

    `warmupTier` is the account's step in the daily warm-up.
    """

    daily_limit: int
    sent_today: int
    remaining_today: int
    warmup_tier: int
    monthly_limit: int
    sent_this_month: int
    remaining_this_month: int


class Cap(Struct):
    """A limit of the plan and its use; `resource` is the name that `plan_limit_reached` errors give.

    `limit` is null where the plan sets none.
    """

    resource: str
    limit: int | None
    used: int


class Me(Struct, rename="camel", kw_only=True):
    """The account of the caller.

    `retentionDays`: days that messages, events and the account log are kept. `scheduleDays`: days that a message may be
    scheduled ahead. `analyticsDays`: days that delivery analytics reach back. `requestsPerSecond`: the limit of each
    key.
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


class RenameAccount(Struct, forbid_unknown_fields=True):
    """The new name of the account, for `PATCH /v1/account`."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class Profile(Struct, rename="camel", kw_only=True):
    """The profile of a person. Others see `displayName` where it is set, else `name`.

    Others are the team, and the people that this person invites. `signatureAddresses`: the addresses that the signature
    applies to; null for all.
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
    """The fields to change, for `PATCH /v1/profile`: an omitted field stays, null clears it.

    `timezone` is an IANA name.
    """

    name: Annotated[str, Meta(max_length=profile.MAX_NAME)] | UnsetType | None = UNSET
    display_name: Annotated[str, Meta(max_length=profile.MAX_NAME)] | UnsetType | None = UNSET
    timezone: Annotated[str, Meta(max_length=profile.MAX_ZONE)] | UnsetType | None = UNSET
    signature: Annotated[str, Meta(max_length=profile.MAX_SIGNATURE)] | UnsetType | None = UNSET
    signature_addresses: (
        Annotated[list[Annotated[str, Meta(min_length=3, max_length=320)]], Meta(max_length=profile.MAX_ADDRESSES)]
        | UnsetType
        | None
    ) = UNSET
