"""Requests and replies of statistics and usage. Days are calendar dates; times are ISO 8601, UTC."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.sending.emails.limits import MAX_TAG
from engine.sending.emails.types import Slug
from engine.sending.statistics.rules import ZONE_PATTERN
from engine.sending.statistics.types import Bucket

Rate = Annotated[float, Meta(ge=0, le=1, description="A share of the settled messages; null if none is settled")]


_QUARTER = Meta(max_length=40, examples=["2026-11-20T08:15:00Z"], extra_json_schema={"format": "date-time"})


class StatsQuery(Struct, forbid_unknown_fields=True, rename="camel"):
    """The query of `GET /v1/stats/messages`."""

    days: Annotated[
        int, Meta(ge=1, le=365, description="Calendar days, today included; default: 30, or 1 by the hour")
    ] | None = None  # fmt: skip
    bucket: Annotated[Bucket, Meta(description="A row for each day or for each hour of the period")] = Bucket.DAY
    from_: Annotated[
        str,
        _QUARTER,
        Meta(description="Created at this time or later, on a quarter hour; instead of `days`. ISO 8601, UTC, `Z`"),
    ] | None = None  # fmt: skip
    until: Annotated[
        str, _QUARTER, Meta(description="Created before this time, on a quarter hour: ISO 8601, UTC, with `Z`")
    ] | None = None  # fmt: skip
    domain: Annotated[str, Meta(min_length=1, max_length=253, description="The sending domain")] | None = None
    stream: Annotated[Slug, Meta(description="The stream of the messages")] | None = None
    tag: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_TAG,
            description="Messages with this tag. Of each quarter hour, the first 1,000 tags are counted",
        ),
    ] | None = None  # fmt: skip
    tz: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description="IANA time zone of the calendar days",
            examples=["Europe/Berlin"],
            extra_json_schema={"pattern": ZONE_PATTERN},
        ),
    ] = "UTC"


class Figures(Struct, rename="camel", kw_only=True):
    """The number of messages by their present status.

    `total` is the sum of the nine statuses. `accepted` excludes messages that are scheduled, canceled, or were refused
    at their scheduled time. Rates are shares of `settled`: delivered, bounced, complained and failed.
    """

    total: int
    accepted: int
    queued: int
    sending: int
    delivered: int
    bounced: int
    complained: int
    failed: int
    rejected: int
    scheduled: int
    canceled: int
    settled: int
    delivery_rate: Rate | None
    bounce_rate: Rate | None
    complaint_rate: Rate | None


class DayFigures(Figures, rename="camel", kw_only=True):
    """The messages created on one calendar day of the time zone, or in one hour of it, which began at `startsAt`."""

    date: str
    starts_at: str


class MessageStats(Struct, rename="camel", kw_only=True):
    """Messages by the day or hour of their creation, oldest first, and in total.

    `from` and `until` bound the period as the same parameters of `GET /v1/messages` do.
    """

    tz: str
    domain: str | None
    stream: str | None
    tag: str | None
    bucket: Bucket
    days: Annotated[int, Meta(description="The calendar days that the period touches")]
    from_: str
    until: str
    data: list[DayFigures]
    totals: Figures


class UsageQuery(Struct, forbid_unknown_fields=True):
    """The query of `GET /v1/usage`."""

    month: Annotated[
        str,
        Meta(
            max_length=7,
            description="A UTC calendar month of the last year; default: the present month",
            examples=["2026-11"],
            extra_json_schema={"pattern": r"^\d{4}-\d{2}$"},
        ),
    ] | None = None  # fmt: skip


class DayUsage(Struct, rename="camel", kw_only=True):
    """The counts of a UTC day: accepted messages, and recipients by the outcome that was recorded on that day."""

    date: str
    accepted: int
    delivered: int
    bounced: int
    complained: int
    failed: int


class Usage(Struct, rename="camel", kw_only=True):
    """The usage of one month.

    `accepted` counts messages, which the allowance limits; outcomes count recipients, on the day of the outcome.
    `limit` and `remaining` are null for a past month.
    """

    month: str
    from_: str
    until: str
    accepted: int
    delivered: int
    bounced: int
    complained: int
    failed: int
    limit: int | None
    remaining: int | None
    data: list[DayUsage]
