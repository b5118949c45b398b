"""Requests and replies of sub-accounts."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_LIMIT = 2**31 - 1

Name = Annotated[str, Meta(min_length=1, max_length=120)]
Limit = Annotated[
    int,
    Meta(
        ge=0,
        le=MAX_LIMIT,
        description="Messages per calendar month (UTC), within the parent's allowance; null: no other limit than that",
    ),
]


class SubAccountIn(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A new sub-account, for `POST /v1/sub-accounts`."""

    name: Name
    monthly_limit: Limit | None = None


class SubAccountChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The fields to change: an omitted field stays. The status `active` also cancels a deletion."""

    name: Name | UnsetType = UNSET
    status: Literal["active", "suspended"] | UnsetType = UNSET
    monthly_limit: Limit | UnsetType | None = UNSET


class SubAccount(Struct, rename="camel", kw_only=True):
    """A sub-account with its own keys, domains, streams, suppressions and account log.

    `suspendedBy`, while it is suspended: `parent` (the parent's people), `inherited` (the parent is suspended itself),
    `rates` (too many bounces or complaints), `operator`. `deletionScheduledFor`: the date of its deletion. `dailyLimit`
    is the sub-account's own warm-up limit.
    """

    id: str
    name: str
    status: Literal["active", "suspended"]
    suspended_by: list[Literal["parent", "inherited", "rates", "operator"]]
    monthly_limit: int | None
    sent_this_month: int
    daily_limit: int
    sent_today: int
    created_at: str
    deletion_scheduled_for: str | None


class SubAccountPage(Struct, rename="camel"):
    """Sub-accounts, newest first. `nextCursor` is null on the last page."""

    data: list[SubAccount]
    next_cursor: str | None
