"""Wire shapes of statistics and usage. Days are calendar dates; moments are ISO 8601, UTC."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.areas.statistics.rules import ZONE_PATTERN

Rate = Annotated[float, Meta(ge=0, le=1, description="A share of the settled messages; null when none is settled")]


class StatsQuery(Struct, forbid_unknown_fields=True):
    """`GET /v1/stats/messages`."""

    days: Annotated[int, Meta(ge=1, le=365, description="Calendar days, today included")] = 30
    domain: Annotated[str, Meta(min_length=1, max_length=253, description="The sending domain")] | None = None
    tz: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description="IANA time zone whose calendar days are counted",
            examples=["Europe/Berlin"],
            extra_json_schema={"pattern": ZONE_PATTERN},
        ),
    ] = "UTC"


class Figures(Struct, rename="camel", kw_only=True):
    """Messages by their present status.

    `total` is the sum of the nine statuses, `accepted` those taken for delivery: not waiting for their date,
    withdrawn, or refused when it came. Rates are of `settled`: delivered, bounced, complained and failed.
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
    """The messages made on one calendar day of the zone, which began at `startsAt`."""

    date: str
    starts_at: str


class MessageStats(Struct, rename="camel", kw_only=True):
    """Messages by the day of their making, oldest day first, and all of them together.

    `from` and `until` bound the whole as they would in `GET /v1/messages`.
    """

    tz: str
    domain: str | None
    days: int
    from_: str
    until: str
    data: list[DayFigures]
    totals: Figures


class UsageQuery(Struct, forbid_unknown_fields=True):
    """`GET /v1/usage`."""

    month: Annotated[
        str,
        Meta(
            max_length=7,
            description="A UTC calendar month; default: the present one. A year back is kept.",
            examples=["2026-11"],
            extra_json_schema={"pattern": r"^\d{4}-\d{2}$"},
        ),
    ] | None = None  # fmt: skip


class DayUsage(Struct, rename="camel", kw_only=True):
    """One UTC day: messages accepted on it, and recipients whose outcome came on it."""

    date: str
    accepted: int
    delivered: int
    bounced: int
    complained: int
    failed: int


class Usage(Struct, rename="camel", kw_only=True):
    """What a month has used. `accepted` counts messages and is what the allowance is about; outcomes count
    recipients, on the day they came.

    `limit` and `remaining` are null for a month that is over.
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
