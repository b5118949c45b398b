"""Decide when a busy domain is split or merged, and when shards are balanced by load. Pure rules, without I/O.

Each condition must hold for some time, and a split ends only below half of the thresholds that start it: moving shards
for every short peak costs more than it saves.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from engine.delivery.splits import SplitAuthor
from shards.ring import assign, burdens, costs

MERGE_FACTOR = 0.5  # of the split thresholds: a domain below it is no longer busy
MAX_PARTS = 16
MIN_GAIN = 0.1  # of a fair share: the least relief of the busiest member that justifies moving shards


class SplitThresholds(Struct, frozen=True, kw_only=True):
    """The settings of the rules: rates in messages per second, durations in seconds, shares as a part of all mail."""

    split_rate: float
    split_share: float
    split_after_s: float
    merge_after_s: float
    balance_rate: float
    balance_after_s: float


class ThresholdState(Struct, frozen=True):
    """Since when a domain, or the balance, has been over or under its thresholds; stored between two runs."""

    over_since: datetime | None = None
    under_since: datetime | None = None


class DomainDecision(Struct, frozen=True):
    """The new number of parts of a domain (None: unchanged) with its reason, and the state to store."""

    state: ThresholdState
    parts: int | None = None
    why: str = ""


def decide_split(
    state: ThresholdState,
    *,
    rate: float,
    share: float,
    parts: int,
    whose: str | None,
    members: int,
    at: datetime,
    thresholds: SplitThresholds,
) -> DomainDecision:
    """Decide whether a domain is split or merged.

    `rate` is its messages per second, `share` its part of all mail, `parts` its present number of parts, and `whose`
    the author of that number (None: the domain was never split). The rules leave an operator's choice alone, and split
    only with two members or more.
    """
    if whose == SplitAuthor.OPERATOR:
        return DomainDecision(ThresholdState())
    over = rate >= thresholds.split_rate and share >= thresholds.split_share
    under = rate < MERGE_FACTOR * thresholds.split_rate or share < MERGE_FACTOR * thresholds.split_share
    new_state = ThresholdState((state.over_since or at) if over else None, (state.under_since or at) if under else None)
    if parts == 1 and members > 1 and _lasted(new_state.over_since, at, thresholds.split_after_s):
        why = f"{rate:.0f}/s, {share:.0%} of all mail, for {thresholds.split_after_s:g} s"
        return DomainDecision(ThresholdState(), parts_for(members), why)
    if parts > 1 and _lasted(new_state.under_since, at, thresholds.merge_after_s):
        return DomainDecision(
            ThresholdState(), 1, f"{rate:.0f}/s, {share:.0%} of all mail, for {thresholds.merge_after_s:g} s"
        )
    return DomainDecision(new_state)


def parts_for(members: int) -> int:
    """Return the number of parts for a split: the power of two at or above `members`, from 2 to MAX_PARTS."""
    return max(2, min(MAX_PARTS, 1 << (members - 1).bit_length()))


class BalanceDecision(Struct, frozen=True):
    """True in `by_load` to balance by the measured loads from now on, with the reason; and the state to store."""

    state: ThresholdState
    by_load: bool = False
    why: str = ""


def decide_balance(
    state: ThresholdState,
    *,
    shards: int,
    weights: Mapping[str, float],
    owners: Mapping[int, str],
    pins: Mapping[int, list[str]],
    rates: Mapping[int, float],
    at: datetime,
    thresholds: SplitThresholds,
) -> BalanceDecision:
    """Decide whether shards are balanced by the measured `rates` (messages per second by shard).

    They are once that would have relieved the busiest member by MIN_GAIN or more for `balance_after_s` seconds.
    """
    active = {name: weight for name, weight in weights.items() if weight > 0}
    if len(active) < 2 or sum(rates.values()) < thresholds.balance_rate:
        return BalanceDecision(ThresholdState())
    cost = costs(shards, rates)
    now = burdens(active, owners, cost)
    then = burdens(active, assign(shards, active, owners, pins=pins, loads=rates), cost)
    if max(now.values()) - max(then.values()) < MIN_GAIN:
        return BalanceDecision(ThresholdState())
    new_state = ThresholdState(over_since=state.over_since or at)
    if not _lasted(new_state.over_since, at, thresholds.balance_after_s):
        return BalanceDecision(new_state)
    why = f"the busiest member carried {max(now.values()):.1f} times its share for {thresholds.balance_after_s:g} s"
    return BalanceDecision(ThresholdState(), by_load=True, why=why)


def _lasted(since: datetime | None, at: datetime, seconds: float) -> bool:
    return since is not None and at - since >= timedelta(seconds=seconds)
