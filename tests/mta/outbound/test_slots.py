"""Connection slots: the next opening, and openings that end early for others."""

from uuid import UUID

from mta.outbound.sites.slots import CUTS, LINGER_S, MAX_STRESSED_S, STRESSED_S, SlotClaim, Slots

NOW = 1_000.0
ANN, BOB = UUID(int=1), UUID(int=2)


def claim(account: UUID, host: str, *, proven: bool = False, failures: int = 0) -> SlotClaim:
    return SlotClaim(account, host, proven=proven, failures=failures)


def asked(slots: Slots, account: UUID, count: int, name: str, *, proven: bool = False) -> list[SlotClaim]:
    """So many claims of an account to hosts of their own; those that were granted a slot."""
    made = [claim(account, f"{name}{number}", proven=proven) for number in range(count)]
    for one in made:
        slots.ask(one, NOW)
    slots.grant(NOW)
    return [one for one in made if one.pools]


def test_hosts_that_never_answered_hold_half_of_the_slots_at_most() -> None:
    slots = Slots(100)
    granted = [one for number in range(100) for one in asked(slots, UUID(int=number), 10, f"silent{number}-")]
    assert len(granted) == 50


def test_one_account_leaves_half_of_these_to_others() -> None:
    slots = Slots(100)
    assert len(asked(slots, ANN, 1_000, "silent")) == 25
    assert len(asked(slots, BOB, 5, "other")) == 5


def test_a_proven_host_is_asked_at_once_whatever_else_is_silent() -> None:
    slots = Slots(100)
    for number in range(1_000):
        asked(slots, UUID(int=10 + number), 10, f"silent{number}-")
    assert slots.ask(claim(ANN, "well", proven=True), NOW)


def test_an_account_with_thousands_of_silent_hosts_reaches_its_own_proven_ones() -> None:
    slots = Slots(100)
    asked(slots, ANN, 10_000, "silent")
    assert slots.ask(claim(ANN, "well", proven=True), NOW)


def test_connections_that_stall_after_the_greeting_stay_in_their_half() -> None:
    slots = Slots(100)
    for one in asked(slots, ANN, 1_000, "stalled"):
        slots.ready(one)
    assert slots.grant(NOW) == []
    assert slots.ask(claim(ANN, "well", proven=True), NOW)
    assert asked(slots, BOB, 1, "new")


def test_a_host_that_answers_makes_room_for_the_next() -> None:
    slots = Slots(100)
    first, *_ = asked(slots, ANN, 100, "new")
    slots.ready(first)
    slots.answered(first)
    assert len(slots.grant(NOW)) == 1


def test_one_account_leaves_a_quarter_of_all_slots_to_others() -> None:
    slots = Slots(100)
    busy: list[SlotClaim] = []
    while granted := asked(slots, ANN, 1, f"well{len(busy)}-", proven=True):
        busy += granted
        slots.ready(granted[0])
    assert len(busy) == 75
    assert asked(slots, BOB, 1, "well", proven=True)


def test_one_host_leaves_a_quarter_of_all_slots_to_others() -> None:
    slots = Slots(100)
    for number in range(1_000):
        one = claim(UUID(int=number), "many names", proven=True)
        slots.ask(one, NOW)
        slots.ready(one)
    assert slots.counts.working == 75
    slots.withdraw(next(iter(slots._lanes[True])))
    assert asked(slots, BOB, 1, "other", proven=True)


def test_a_proven_host_that_falls_silent_counts_as_unproven_after_a_while() -> None:
    slots = Slots(100)
    assert len(asked(slots, ANN, 100, "was well", proven=True)) == 13  # half of a quarter
    slots.overdue(NOW + LINGER_S + 0.1)
    assert len(slots.grant(NOW + LINGER_S + 0.1)) == 13


def test_the_account_with_the_fewest_slots_and_failures_goes_first() -> None:
    slots = Slots(2)  # one of them for hosts that never answered
    [held] = asked(slots, ANN, 1, "silent")
    first, second = claim(ANN, "silent too"), claim(BOB, "new")
    assert not slots.ask(first, NOW)
    assert not slots.ask(second, NOW)
    slots.free(held, failed=True)
    assert slots.grant(NOW) == [second]


def test_of_one_account_the_host_with_the_fewest_failures_goes_first_and_then_the_newest() -> None:
    slots = Slots(4)
    [held] = asked(slots, ANN, 1, "held")
    waiting = [claim(ANN, "failed", failures=1), claim(ANN, "old"), claim(ANN, "new")]
    for one in waiting:
        assert not slots.ask(one, NOW)
    order: list[SlotClaim] = []
    while len(order) < 3:
        slots.free(held)
        [held] = slots.grant(NOW)
        order.append(held)
    assert [one.host for one in order] == ["new", "old", "failed"]


def test_an_opening_has_all_its_time_while_nobody_waits() -> None:
    slots = Slots(100)
    asked(slots, ANN, 25, "silent")
    assert slots.overdue(NOW + 299) == []


def test_openings_end_early_while_others_wait_and_no_more_than_wait_and_few_at_once() -> None:
    slots = Slots(2 * CUTS)
    held = asked(slots, ANN, CUTS // 2 + 1, "silent")
    assert (len(held), slots.counts.waiting_unproven) == (CUTS // 2, 1)
    assert slots.overdue(NOW + STRESSED_S - 0.1) == []
    assert slots.overdue(NOW + STRESSED_S + 0.1) == held[:1]
    asked(slots, ANN, 10, "more")
    assert slots.overdue(NOW + STRESSED_S + 0.1) == held[:2]


def test_a_transaction_never_ends_early() -> None:
    slots = Slots(100)
    for one in asked(slots, ANN, 100, "stalled"):
        slots.ready(one)
    assert slots.overdue(NOW + 599) == []


def test_who_holds_less_is_not_ended_for_who_holds_more() -> None:
    slots = Slots(100)
    [slow] = asked(slots, BOB, 1, "slow")
    asked(slots, ANN, 1_000, "silent")
    assert slow not in slots.overdue(NOW + 2 * STRESSED_S)


def test_a_host_that_failed_before_has_more_time() -> None:
    assert [claim(ANN, "x", failures=count).patience_s for count in (0, 1, 2, 3)] == [
        STRESSED_S, 2 * STRESSED_S, MAX_STRESSED_S, MAX_STRESSED_S,
    ]  # fmt: skip


def test_the_time_begins_anew_at_the_next_address() -> None:
    slots = Slots(100)
    held = asked(slots, ANN, 30, "silent")
    slots.next_address(held[0], "second", NOW + STRESSED_S)
    assert held[0] not in slots.overdue(NOW + STRESSED_S + 0.1)


def test_what_is_freed_leaves_nothing_behind() -> None:
    slots = Slots(100)
    for one in asked(slots, ANN, 25, "silent") + asked(slots, BOB, 10, "well", proven=True):
        slots.ready(one)
        slots.free(one)
    counts = slots.counts
    assert (counts.opening, counts.working, counts.waiting_proven, counts.waiting_unproven) == (0, 0, 0, 0)
    assert not slots._all.held
    assert not slots._by_host.held
