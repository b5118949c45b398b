"""When a domain is split or merged, and when loads are reckoned with, by rule. Pure.

Every rule asks that something has lasted, and lets go at half of what it takes hold at: a map that changes with every
gust would cost more than it brings.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from engine.delivery.splits import SplitAuthor
from shards.ring import assign, burdens, costs

LET_GO = 0.5  # of the bounds at which a domain is hot: below it, it is not any more
MAX_PARTS = 16
GAIN = 0.1  # of a fair share: what the busiest member must be relieved of for shards to move


class Bounds(Struct, frozen=True, kw_only=True):
    """Rates in messages a second, times in seconds, `share` of all mail."""

    split_rate: float
    split_share: float
    split_after_s: float
    merge_after_s: float
    balance_rate: float
    balance_after_s: float


class Watched(Struct, frozen=True):
    """Since when something has been over or under its bounds."""

    over_since: datetime | None = None
    under_since: datetime | None = None


class Hot(Struct, frozen=True):
    """What a domain is to be, and what is remembered; `parts` None: as it is."""

    watched: Watched
    parts: int | None = None
    why: str = ""


def judge_domain(
    watched: Watched,
    *,
    rate: float,
    share: float,
    parts: int,
    whose: str | None,
    members: int,
    at: datetime,
    bounds: Bounds,
) -> Hot:
    """A domain with `rate` messages a second, that `share` of all mail goes to, in `parts` on the word of `whose`
    (None: on nobody's). Without a second member there is nobody to share it with."""
    if whose == SplitAuthor.OPERATOR:
        return Hot(Watched())
    over = rate >= bounds.split_rate and share >= bounds.split_share
    under = rate < LET_GO * bounds.split_rate or share < LET_GO * bounds.split_share
    seen = Watched((watched.over_since or at) if over else None, (watched.under_since or at) if under else None)
    if parts == 1 and members > 1 and _lasted(seen.over_since, at, bounds.split_after_s):
        why = f"{rate:.0f}/s, {share:.0%} of all mail, for {bounds.split_after_s:g} s"
        return Hot(Watched(), parts_for(members), why)
    if parts > 1 and _lasted(seen.under_since, at, bounds.merge_after_s):
        return Hot(Watched(), 1, f"{rate:.0f}/s, {share:.0%} of all mail, for {bounds.merge_after_s:g} s")
    return Hot(seen)


def parts_for(members: int) -> int:
    """Parts enough for every member to get one: the power of two at or above their number."""
    return max(2, min(MAX_PARTS, 1 << (members - 1).bit_length()))


class Balance(Struct, frozen=True):
    """Whether to reckon with the measured loads from now on, and what is remembered."""

    watched: Watched
    wanted: bool = False
    why: str = ""


def judge_balance(
    watched: Watched,
    *,
    shards: int,
    weights: Mapping[str, float],
    owners: Mapping[int, str],
    pins: Mapping[int, list[str]],
    rates: Mapping[int, float],
    at: datetime,
    bounds: Bounds,
) -> Balance:
    """Who carries what, as measured: reckon with it when that would relieve the busiest member noticeably."""
    living = {name: weight for name, weight in weights.items() if weight > 0}
    if len(living) < 2 or sum(rates.values()) < bounds.balance_rate:
        return Balance(Watched())
    cost = costs(shards, rates)
    now = burdens(living, owners, cost)
    then = burdens(living, assign(shards, living, owners, pins=pins, loads=rates), cost)
    if max(now.values()) - max(then.values()) < GAIN:
        return Balance(Watched())
    seen = Watched(over_since=watched.over_since or at)
    if not _lasted(seen.over_since, at, bounds.balance_after_s):
        return Balance(seen)
    why = f"the busiest member carried {max(now.values()):.1f} times its share for {bounds.balance_after_s:g} s"
    return Balance(Watched(), wanted=True, why=why)


def _lasted(since: datetime | None, at: datetime, seconds: float) -> bool:
    return since is not None and at - since >= timedelta(seconds=seconds)
