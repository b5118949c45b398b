"""Domains are split, merged and balanced only when a condition lasts."""

from datetime import UTC, datetime, timedelta

from engine.delivery.splits import SplitAuthor
from shards.load import MINUTE_S, ShardLoad
from shards.ring import assign
from shards.split_policy import (
    BalanceDecision,
    DomainDecision,
    SplitThresholds,
    ThresholdState,
    decide_balance,
    decide_split,
    parts_for,
)

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
THRESHOLDS = SplitThresholds(
    split_rate=50, split_share=0.2, split_after_s=60, merge_after_s=900, balance_rate=20, balance_after_s=60
)


def decide(state: ThresholdState, seconds: float, *, rate: float, parts: int = 1, whose: str | None = None,
           members: int = 4, share: float = 0.4) -> DomainDecision:  # fmt: skip
    at = START + timedelta(seconds=seconds)
    return decide_split(
        state, rate=rate, share=share, parts=parts, whose=whose, members=members, at=at, thresholds=THRESHOLDS
    )


def test_a_domain_is_split_once_it_has_been_hot_for_long_enough() -> None:
    first = decide(ThresholdState(), 0, rate=80)
    assert (first.parts, first.state.over_since) == (None, START)
    assert decide(first.state, 59, rate=80).parts is None

    hot = decide(first.state, 60, rate=80)

    assert hot.parts == 4
    assert "80/s" in hot.why


def test_a_lull_restarts_the_wait_before_a_split() -> None:
    first = decide(ThresholdState(), 0, rate=80)
    lull = decide(first.state, 30, rate=10)

    assert lull.state.over_since is None
    assert decide(lull.state, 61, rate=80).parts is None


def test_a_busy_domain_with_a_small_share_of_all_mail_is_not_split() -> None:
    assert decide(ThresholdState(over_since=START), 1000, rate=500, share=0.1).parts is None


def test_a_domain_between_the_split_and_merge_thresholds_stays_split() -> None:
    state = ThresholdState()
    for seconds in range(0, 10_000, 100):
        hot = decide(state, seconds, rate=30, parts=4, whose=SplitAuthor.RULE)  # above half, below the whole
        state = hot.state
        assert hot.parts is None


def test_a_domain_that_has_cooled_is_merged_after_a_long_time() -> None:
    first = decide(ThresholdState(), 0, rate=3, parts=4, whose=SplitAuthor.RULE)
    assert decide(first.state, 899, rate=3, parts=4, whose=SplitAuthor.RULE).parts is None
    assert decide(first.state, 900, rate=3, parts=4, whose=SplitAuthor.RULE).parts == 1


def test_rules_do_not_change_an_operators_split() -> None:
    whole = decide(ThresholdState(over_since=START), 10_000, rate=500, parts=1, whose=SplitAuthor.OPERATOR)
    split = decide(ThresholdState(under_since=START), 10_000, rate=0, parts=8, whose=SplitAuthor.OPERATOR)

    assert (whole.parts, split.parts) == (None, None)


def test_nothing_is_split_for_a_single_member() -> None:
    assert decide(ThresholdState(over_since=START), 10_000, rate=500, members=1).parts is None
    assert [parts_for(members) for members in (1, 2, 3, 4, 5, 40)] == [2, 2, 4, 4, 8, 16]


def decide_uneven(state: ThresholdState, seconds: float, rates: dict[int, float]) -> BalanceDecision:
    weights = {"a": 1.0, "b": 1.0}
    return decide_balance(
        state, shards=32, weights=weights, owners=assign(32, weights, {}), pins={}, rates=rates,
        at=START + timedelta(seconds=seconds), thresholds=THRESHOLDS,
    )  # fmt: skip


def test_shards_are_balanced_by_load_once_it_has_been_uneven_for_long_enough() -> None:
    owners = assign(32, {"a": 1.0, "b": 1.0}, {})
    uneven = {shard: 10.0 if owner == "a" else 0.1 for shard, owner in owners.items()}
    first = decide_uneven(ThresholdState(), 0, uneven)
    assert (first.by_load, first.state.over_since) == (False, START)

    assert decide_uneven(first.state, 60, uneven).by_load
    assert not decide_uneven(first.state, 60, dict.fromkeys(range(32), 1.0)).by_load
    assert not decide_uneven(
        first.state, 60, {shard: load / 100 for shard, load in uneven.items()}
    ).by_load  # hardly any mail


def test_rates_are_those_of_the_last_minute_and_of_owned_shards() -> None:
    now = [0.0]
    load = ShardLoad(lambda: now[0])
    load.rotate({1, 2})
    for _ in range(600):
        load.count(1, "hot.test")
    for _ in range(12):
        now[0] += 5
        load.rotate({1, 2})
    assert load.shards() == {1: 10.0, 2: 0.0}
    assert load.domains() == [("hot.test", 10.0)]

    now[0] += MINUTE_S + 5
    load.rotate({2, 3})

    assert load.shards() == {2: 0.0, 3: 0.0}
    assert load.domains() == []
