"""Define the plans: their limits, request rates and the daily warm-up limits of new accounts, one table each.

`None` means unlimited. The figures of the Enterprise plan are minimums that an agreement with an account can raise.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace


class Plan(StrEnum):
    """The five plans that an account can have."""

    FREE = "free"
    STARTER = "starter"
    GROWTH = "growth"
    SCALE = "scale"
    ENTERPRISE = "enterprise"


class Caps(Struct, frozen=True, kw_only=True):
    """The limits of one plan: days for periods, counts for everything else."""

    monthly_emails: int
    sending_domains: int | None
    retention_days: int
    schedule_days: int
    templates: int | None
    streams: int | None
    inbound_addresses: int
    monthly_received: int | None
    monthly_verifications: int
    monthly_address_checks: int
    webhooks: int | None
    api_keys: int | None
    contacts: int | None
    lists: int | None
    seats: int | None
    sub_accounts: int | None
    analytics_days: int
    requests_per_second: int


_ROWS: dict[str, tuple[int | None, int | None, int | None, int | None, int | None]] = {
    "monthly_emails": (750, 100_000, 300_000, 1_000_000, 1_000_000),
    "sending_domains": (1, None, None, None, None),
    "retention_days": (30, 90, 365, 730, 730),
    "schedule_days": (1, 3, 7, 14, 21),
    "templates": (3, 25, 100, None, None),
    "streams": (1, 3, 10, 25, None),
    "inbound_addresses": (0, 10, 50, 250, 2_000),
    "monthly_received": (0, 50_000, 200_000, 750_000, None),
    "monthly_verifications": (100, 5_000, 25_000, 100_000, 100_000),
    "monthly_address_checks": (250, 10_000, 50_000, 250_000, 250_000),
    "webhooks": (1, 3, 10, 25, None),
    "api_keys": (5, 15, 40, 150, None),
    "contacts": (500, 5_000, 50_000, 250_000, None),
    "lists": (2, 10, 50, None, None),
    "seats": (1, 3, 10, None, None),
    "sub_accounts": (0, 0, 5, 25, None),
    "analytics_days": (7, 30, 90, 90, 90),
    "requests_per_second": (10, 50, 200, 1_000, 5_000),
}

CAPS: dict[Plan, Caps] = {
    plan: Caps(**{name: row[column] for name, row in _ROWS.items()})  # type: ignore[arg-type]
    for column, plan in enumerate(Plan)
}

# Messages per day that a new account may send, step by step.
DAILY_ALLOWANCES: tuple[int, ...] = (50, 200, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000)

MAX_SEGMENTS = 100  # of an account with any plan
MAX_LAYOUTS = 100  # of an account with any plan


# The limits that an agreement can raise: those that the largest plan has.
AGREEABLE: Final = tuple(name for name, row in _ROWS.items() if row[-1] is not None)
IN_DAYS: Final = frozenset(name for name in AGREEABLE if name.endswith("_days"))
MAX_AGREED_DAYS: Final = 36_500
MAX_AGREED: Final = 2_000_000_000  # what an integer column holds


@lru_cache(maxsize=1_024)
def caps_of(plan: str, agreed: str | None) -> Caps:
    """Return the limits of an account: its plan's, raised by `accounts.agreed_caps` (JSON; null: nothing is agreed).

    The monthly emails and the retention of an agreement have columns of their own.
    """
    caps = CAPS[Plan(plan)]
    if agreed is None:
        return caps
    figures = json.decode(agreed, type=dict[str, int])
    return replace(caps, **{name: max(figure, getattr(caps, name)) for name, figure in figures.items()})


def layouts_of(caps: Caps) -> int:
    """Return how many layouts an account may have: as many as templates, up to MAX_LAYOUTS."""
    return min(caps.templates or MAX_LAYOUTS, MAX_LAYOUTS)
