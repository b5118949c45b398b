"""The number of deliveries of broadcasts at work in one process."""

from uuid import UUID

import pytest

from engine.base import clock, ids
from engine.base.processor_wait import LONG_WAIT
from engine.delivery.queue import BROADCAST_PRIORITY, Row
from mta.outbound import broadcast_window
from mta.outbound.broadcast_window import (
    BESIDE_S,
    FEW,
    FIRST,
    LONG_TURN_S,
    MAX_HOLD_S,
    MIN_ALONE,
    MIN_BESIDE,
    STUCK_S,
    BroadcastWindow,
)
from mta.outbound.delivery import ActiveDelivery

NOW = 1_000.0
LONG, SHORT = 2 * LONG_TURN_S, LONG_TURN_S / 10
LARGEST = 500


def delivery(at: float = NOW, priority: int = BROADCAST_PRIORITY) -> ActiveDelivery:
    row = Row(
        ids.uuid7(), "peer.test", 0, UUID(int=1), "a.test", '[[0, "ann@peer.test"]]', 1, clock.now(), 0, None, None,
        b"x", False, priority=priority,
    )  # fmt: skip
    return ActiveDelivery(row, at)


def filled(window: BroadcastWindow, at: float = NOW) -> list[ActiveDelivery]:
    """Take as many deliveries as the window has room for."""
    taken = [delivery(at) for _ in range(window.room(at))]
    for one in taken:
        window.taken(one)
    return taken


def measure(
    window: BroadcastWindow, turn_s: float, times: int = 100, at: float = NOW, processor_wait: float = 0.0
) -> None:
    """Measure as many turns; the window is full in each."""
    for _ in range(times):
        filled(window, at)
        window.measured(turn_s, processor_wait, at)


def test_the_window_has_room_until_it_is_full_and_again_when_deliveries_leave() -> None:
    window = BroadcastWindow(LARGEST)
    taken = filled(window)
    assert len(taken) == FIRST
    assert window.room(NOW) == 0

    window.left(taken[0])
    window.left(taken[0])
    assert window.room(NOW) == 0  # rows are loaded some at a time
    for one in taken[1:4]:
        window.left(one)
    assert window.room(NOW) == 4


def test_short_turns_of_a_full_window_let_it_grow_up_to_its_largest_size() -> None:
    window = BroadcastWindow(LARGEST)
    measure(window, SHORT)
    assert window.size == LARGEST


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = BroadcastWindow(LARGEST)
    for _ in range(100):
        window.measured(SHORT, 0.0, NOW)
    assert window.size == MIN_ALONE


def test_long_turns_shrink_the_window_more_while_other_mail_comes() -> None:
    alone, beside = BroadcastWindow(LARGEST), BroadcastWindow(LARGEST)
    beside.taken(delivery(priority=1))
    for window in (alone, beside):
        measure(window, SHORT)
        measure(window, LONG)

    assert (alone.size, beside.size) == (MIN_ALONE, MIN_BESIDE)
    beside.measured(LONG, 0.0, NOW + BESIDE_S)
    assert beside.size == MIN_ALONE


def test_a_process_that_waits_for_processors_shrinks_its_window_although_turns_are_short() -> None:
    window = BroadcastWindow(LARGEST)
    window.taken(delivery(priority=1))
    measure(window, SHORT)
    measure(window, SHORT, processor_wait=LONG_WAIT + 0.01)
    assert window.size == MIN_BESIDE


@pytest.mark.parametrize(("turn_s", "processor_wait"), [(LONG, 0.0), (SHORT, LONG_WAIT + 0.01)])
def test_broadcasts_go_on_slowly_while_the_process_is_late_beside_other_mail(
    turn_s: float, processor_wait: float
) -> None:
    window = BroadcastWindow(LARGEST)
    window.taken(delivery(NOW - 1, priority=0))
    window.taken(delivery(NOW))
    window.measured(turn_s, processor_wait, NOW)

    assert window.room(NOW + MAX_HOLD_S / 2) == 0
    assert window.room(NOW + MAX_HOLD_S) == FEW


def test_a_full_window_takes_nothing_while_the_process_is_late() -> None:
    window = BroadcastWindow(LARGEST)
    window.taken(delivery(priority=0))
    filled(window)
    window.measured(LONG, 0.0, NOW)
    assert window.room(NOW + MAX_HOLD_S) == 0


def test_deliveries_whose_servers_keep_them_waiting_leave_the_window() -> None:
    window = BroadcastWindow(LARGEST)
    filled(window)
    assert window.room(NOW + STUCK_S / 2) == 0
    assert window.room(NOW + STUCK_S + 0.001) == FIRST


def test_the_smallest_window_lets_one_delivery_through() -> None:
    window = BroadcastWindow(1)
    measure(window, LONG)
    window.clear()
    assert window.room(NOW + 1) == 1


def test_a_delivery_that_was_never_taken_leaves_nothing() -> None:
    window = BroadcastWindow(LARGEST)
    window.left(delivery())
    assert window.room(NOW) == broadcast_window.FIRST
