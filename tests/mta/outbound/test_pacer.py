"""The window of a site: growth, shrinking, pauses, and message rates."""

import time
from typing import Any

import pytest

from engine.base.settings import Settings
from engine.delivery.sites import Limits, NamedRule, RuleBook, SiteRule
from mta.outbound.sites import pacer as pacers
from mta.outbound.sites.pacer import INITIAL_WINDOW, PUSHED_TOO_OFTEN, Pacer


def limits(**rule: Any) -> Limits:
    named = NamedRule(("mx.peer.test",), SiteRule(**rule), "operator")
    return RuleBook([named]).limits("mx.peer.test", ["mx.peer.test"], Settings())


def made(**rule: Any) -> Pacer:
    pacer = Pacer(limits(**rule))
    pacer.share = pacer.limits.connections
    return pacer


def left_alone(pacer: Pacer, now: float) -> float:
    """Push back until the servers are left alone; when that was."""
    for number in range(20):
        if pacer.pushed_back(now + number, now + number, "421 4.7.0 slow down"):
            return now + number
    raise AssertionError("never left alone")


def test_a_window_starts_small_and_doubles_while_all_goes_well() -> None:
    pacer = made(connections=100)
    assert pacer.window == INITIAL_WINDOW
    for _ in range(5):
        pacer.succeeded()
    assert pacer.window == 2 * INITIAL_WINDOW


def test_a_window_never_passes_the_rule() -> None:
    pacer = made(connections=7)
    for _ in range(100):
        pacer.succeeded()
    assert pacer.window == 7
    assert made(connections=3).window == 3


def test_a_push_back_halves_the_connections_in_use_and_growth_is_slow_from_there() -> None:
    pacer = made(connections=100)
    pacer.window, pacer.open = 40.0, 16
    assert not pacer.pushed_back(10.0, 10.0, "421 4.7.0 too much")
    assert pacer.window == 8
    for _ in range(8):
        pacer.succeeded()
    assert 8.9 < pacer.window < 9.1


def test_answers_of_the_same_moment_halve_once() -> None:
    pacer = made(connections=100)
    pacer.window = pacer.open = 16
    for _ in range(10):
        pacer.pushed_back(10.0, 9.0, "421 4.7.0 too much")
    assert pacer.window == 8
    assert len(pacer.recent) == 10
    assert pacer.moved is not None
    assert pacer.moved.effect == "window halved to 8"


def test_servers_that_push_back_again_and_again_are_left_alone_and_probed_by_one() -> None:
    pacer = made()
    now = time.monotonic()
    at = left_alone(pacer, now)
    assert pacer.pushes >= PUSHED_TOO_OFTEN
    assert pacer.paused(at + pacers.PAUSE_S * 0.7)
    assert pacer.room(at + 1) == 0
    after = at + pacers.PAUSE_S * 1.3
    assert not pacer.paused(after)
    assert pacer.probing
    assert pacer.room(after) == 1
    assert pacer.next_probe is not None


def test_a_probe_that_fails_makes_the_next_pause_longer_up_to_a_bound() -> None:
    pacer = made()
    at = left_alone(pacer, time.monotonic())
    lengths = []
    for _ in range(12):
        at = pacer.paused_until + 1
        assert pacer.pushed_back(at, at, "421 4.7.0 still too much")
        lengths.append(pacer.paused_until - at)
    assert lengths[0] > pacers.PAUSE_S * 2 * 0.75
    assert max(lengths) <= pacers.MAX_PAUSE_S * 1.2


def test_a_probe_that_succeeds_opens_the_window_again_from_one() -> None:
    pacer = made(connections=50)
    pacer.window = 30
    left_alone(pacer, time.monotonic())
    pacer.paused_until = 0.0
    pacer.succeeded()
    assert not pacer.probing
    assert pacer.window == 2
    assert pacer.next_probe is None


def test_pauses_of_two_processes_are_not_in_step() -> None:
    lengths = set()
    for _ in range(20):
        pacer = made()
        at = left_alone(pacer, 1000.0)
        lengths.add(round(pacer.paused_until - at, 1))
    assert len(lengths) > 5


def test_a_refusal_of_one_recipient_is_no_push_back() -> None:
    pacer = made()
    pacer.pushed_back(10.0, 10.0, "421 4.7.0 too much")
    pacer.answered()
    assert pacer.pushes == 0


def test_a_share_that_others_leave_bounds_the_window() -> None:
    pacer = made(connections=20)
    pacer.share = 2
    assert pacer.room(0.0) == 2
    pacer.open = 3
    assert pacer.room(0.0) == 0
    assert pacer.excess


def test_a_rate_lets_nothing_begin_without_a_token() -> None:
    pacer = made(per_second=10)
    assert pacer.ahead == 5
    assert not pacer.may_begin()
    pacer.tokens = 1
    assert pacer.may_begin()
    assert not pacer.may_begin()
    pacer.give_back()
    assert pacer.may_begin()


def test_no_connection_is_opened_before_the_rate_allows_a_message() -> None:
    pacer = made(per_hour=1)
    pacer.token_at = 100.0
    assert pacer.room(50.0) == 0
    assert pacer.room(101.0) > 0


def test_a_new_rule_cuts_the_window_at_once() -> None:
    pacer = made(connections=20)
    pacer.window = 18
    pacer.obey(limits(connections=4))
    assert pacer.window == 4


@pytest.mark.parametrize("said", ["x" * 10_000, "421 4.7.0 slow"])
def test_answers_are_kept_short_and_few(said: str) -> None:
    pacer = made()
    for number in range(50):
        pacer.pushed_back(float(number), 0.0, said)
    assert len(pacer.recent) == pacers.RECENT
    assert all(len(noted.said) <= pacers.MAX_SAID for noted in pacer.recent)
