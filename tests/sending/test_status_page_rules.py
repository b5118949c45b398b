"""The states of the status page's components, by figures alone."""

from datetime import UTC, date, datetime

import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.sending.status_page import rules
from engine.sending.status_page.types import ComponentDay, ComponentState, StatusComponent, StatusFigures

UP, DEGRADED, DOWN = ComponentState.UP, ComponentState.DEGRADED, ComponentState.DOWN
ACCEPTING, DELIVERING = StatusComponent.ACCEPTING, StatusComponent.DELIVERING
WEBHOOKS, RECEIVING = StatusComponent.WEBHOOKS, StatusComponent.RECEIVING
ALL = frozenset({"api", "relay", "mx", "mta", "worker"})
WELL = StatusFigures(0.0, 100, 0.0, 0.0, ALL)


def states(**changed: object) -> dict[StatusComponent, ComponentState]:
    found = rules.readings(Settings(), structs.replace(WELL, **changed))
    return {name: one.state for name, one in found.items()}


@pytest.mark.parametrize(
    ("changed", "component", "state"),
    [
        ({"kinds": ALL - {"relay"}}, ACCEPTING, DEGRADED),
        ({"kinds": ALL - {"api"}}, ACCEPTING, DOWN),
        ({"delivery_late_s": 119.0}, DELIVERING, UP),
        ({"delivery_late_s": 120.0}, DELIVERING, DEGRADED),
        ({"delivery_late_s": 900.0}, DELIVERING, DOWN),
        ({"failed_share": 0.49}, DELIVERING, UP),
        ({"failed_share": 0.5}, DELIVERING, DEGRADED),
        ({"failed_share": 1.0, "attempts": 19}, DELIVERING, UP),
        ({"webhooks_late_s": 120.0}, WEBHOOKS, DEGRADED),
        ({"webhooks_late_s": 900.0}, WEBHOOKS, DOWN),
        ({"kinds": ALL - {"mx"}}, RECEIVING, DOWN),
    ],
)
def test_a_fault_concerns_its_component_alone(
    changed: dict[str, object], component: StatusComponent, state: ComponentState
) -> None:
    assert states(**changed) == dict.fromkeys(StatusComponent, UP) | {component: state}


def test_receiving_and_submission_count_only_where_they_run() -> None:
    settings = Settings(processes=("api", "mta", "worker"))
    found = rules.readings(settings, structs.replace(WELL, kinds=frozenset({"api", "mta", "worker"})))

    assert list(found) == [ACCEPTING, DELIVERING, WEBHOOKS]
    assert {one.state for one in found.values()} == {UP}


def test_without_the_database_all_is_down() -> None:
    assert {one.state for one in rules.readings(Settings(), None).values()} == {DOWN}


def test_a_state_counts_once_two_measurements_agree() -> None:
    assert rules.confirmed({ACCEPTING: UP}, {ACCEPTING: DOWN}) == {ACCEPTING: UP}
    assert rules.confirmed({ACCEPTING: DOWN}, {ACCEPTING: DOWN}) == {ACCEPTING: DOWN}
    assert rules.confirmed({ACCEPTING: DOWN}, {ACCEPTING: DEGRADED}) == {ACCEPTING: DEGRADED}
    assert rules.confirmed({}, {ACCEPTING: DOWN, WEBHOOKS: UP}) == {WEBHOOKS: UP}


def test_uptime_is_the_share_of_measured_quarter_hours_that_were_not_down() -> None:
    day = date(2026, 11, 20)
    days = [ComponentDay("accepting", day, 96, 4, 0), ComponentDay("accepting", day, 4, 0, 1)]

    assert rules.uptime(days) == 99.0
    assert rules.uptime([]) is None
    assert [rules.day_state(one) for one in (*days, ComponentDay("accepting", day, 3, 0, 0), None)] == [
        DEGRADED, DOWN, UP, None
    ]  # fmt: skip


def test_a_day_is_shown_for_each_of_90_days_to_today() -> None:
    days = rules.shown_days(date(2026, 11, 20))

    assert (len(days), days[0], days[-1]) == (90, date(2026, 8, 23), date(2026, 11, 20))
    assert rules.quarter_of(datetime(2026, 11, 20, 8, 44, 59, tzinfo=UTC)) == datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
