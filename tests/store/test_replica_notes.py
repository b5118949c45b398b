"""The lag of a replica is the age of the newest note of the primary's log that it shows."""

import math
from datetime import UTC, datetime, timedelta

from engine.store.replicas import PrimaryNotes, PrimaryState, ReplicaState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def primary(place: int, *, timeline: int = 1, mark_timeline: int = 1, marked_at: datetime = NOON) -> PrimaryState:
    return PrimaryState(place, timeline, mark_timeline, marked_at, 0.0)


def noted(*states: PrimaryState) -> PrimaryNotes:
    """The notes of a process that asked the primary once a second, from second 100 on."""
    notes = PrimaryNotes()
    for second, state in enumerate(states):
        notes.add(100.0 + second, state)
    return notes


def test_a_replica_shows_what_was_committed_before_the_last_note_that_it_has_reached() -> None:
    notes = noted(primary(10), primary(20), primary(30))
    assert notes.shown_until(ReplicaState(25, 1, NOON)) == 101.0
    assert notes.shown_until(ReplicaState(30, 1, NOON)) == 102.0
    assert notes.shown_until(ReplicaState(9, 1, NOON)) == -math.inf


def test_a_replica_of_an_idle_primary_does_not_look_late() -> None:
    assert noted(primary(10), primary(10), primary(10)).shown_until(ReplicaState(10, 1, NOON)) == 102.0


def test_a_place_without_the_mark_belongs_to_another_history() -> None:
    notes = noted(primary(10), primary(20, marked_at=NOON + timedelta(seconds=10)))
    assert notes.shown_until(ReplicaState(99, 1, NOON)) == 100.0  # it has the mark of the first note alone
    assert notes.shown_until(ReplicaState(99, 2, NOON + timedelta(seconds=10))) == -math.inf
    assert notes.shown_until(ReplicaState(99, None, None)) == -math.inf


def test_after_a_promotion_only_the_new_mark_counts() -> None:
    notes = noted(primary(10), primary(20), primary(15, timeline=2))
    assert notes.shown_until(ReplicaState(99, 1, NOON)) == -math.inf  # the new primary has the old mark
    later = NOON + timedelta(seconds=5)
    notes.add(110.0, primary(16, timeline=2, mark_timeline=2, marked_at=later))
    assert notes.shown_until(ReplicaState(99, 1, NOON)) == -math.inf
    assert notes.shown_until(ReplicaState(16, 2, later)) == 110.0


def test_a_server_that_is_no_replica_shows_nothing() -> None:
    assert noted(primary(10)).shown_until(ReplicaState(None, 1, NOON)) == -math.inf
