"""The status of a message after each event, derived from the log, and the filters of tails."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import clock, ids
from engine.base.events import SETTLED, EventType, Status, status_of_message
from engine.events.tails import rules
from engine.events.tails.types import ShownEvent, StepRow, TailFilters, TailRow
from engine.ledger.log import Entry, detail_text, payload_of

MESSAGE = ids.uuid7()
ACCOUNT = ids.uuid7()

Step = tuple[str, Mapping[str, object]]
ANN, BOB = {"recipient": "a@b.c"}, {"recipient": "b@b.c"}


def payload(kind: str, detail: Mapping[str, object]) -> str:
    return payload_of(Entry(ACCOUNT, kind, detail_text(detail), clock.now(), MESSAGE, "msg_x"))


def statuses(recipients: int, *steps: Step) -> list[Status | None]:
    """The statuses that tails show for a message with these events."""
    rows = [
        TailRow(ids.uuid7(), seq, kind, "", MESSAGE, payload(kind, detail), recipients, "", "", "", "", None, [])
        for seq, (kind, detail) in enumerate(steps, 1)
    ]
    needed = rules.with_history(rows)
    history = [StepRow(MESSAGE, row.seq, row.type, row.payload) for row in rows] if needed else []
    return [None if event is None else event.status for event in rules.events(rows, history)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("accepted", {}), ("attempted", {}), ("deferred", {}), ("attempted", {}), ("failed", {})],
         ["queued", "sending", "sending", "sending", "failed"]),
        ([("scheduled", {}), ("schedule_canceled", {})], ["scheduled", "canceled"]),
        ([("scheduled", {}), ("schedule_failed", {})], ["scheduled", "rejected"]),
        ([("accepted", {}), ("queued", {}), ("attempted", {}), ("queued", {})],
         ["queued", "queued", "sending", "sending"]),
        ([("delivered", {"recipient": "a@b.c"}), ("bounced", {"recipient": "a@b.c"})], ["delivered", "bounced"]),
        ([("delivered", {}), ("complained", {})], ["delivered", "complained"]),
        ([("suppressed", {"recipient": "a@b.c", "phase": "delivery"})], ["rejected"]),
    ],
)  # fmt: skip
def test_a_message_to_one_has_the_status_of_its_last_event(steps: list[Step], expected: list[str]) -> None:
    assert statuses(1, *steps) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("delivered", ANN), ("deferred", BOB), ("failed", BOB)],
         ["sending", "sending", "failed"]),
        ([("bounced", ANN), ("delivered", BOB)], ["sending", "bounced"]),
        ([("delivered", ANN), ("delivered", BOB), ("bounced", ANN)],
         ["sending", "delivered", "bounced"]),
        ([("scheduled", {}), ("suppressed", {"recipient": "a@b.c", "phase": "scheduled_release"})],
         ["scheduled", "rejected"]),
        ([("scheduled", {}), ("rejected", {"reason": "domain"})], ["scheduled", "rejected"]),
    ],
)  # fmt: skip
def test_a_message_to_two_is_on_its_way_until_both_are_settled(steps: list[Step], expected: list[str]) -> None:
    assert statuses(2, *steps) == expected


@given(st.lists(st.sampled_from(sorted({Status.DELIVERED, Status.BOUNCED, Status.FAILED})), min_size=1, max_size=50))
def test_the_last_outcome_leaves_what_the_recipients_come_to(outcomes: list[Status]) -> None:
    steps: list[Step] = [(outcome.value, {"recipient": f"r{n}@b.c"}) for n, outcome in enumerate(outcomes)]

    found = statuses(len(outcomes), *steps)

    assert found[-1] is status_of_message(outcomes)
    assert all(status is Status.SENDING for status in found[:-1])


def test_every_type_but_the_wait_leaves_a_status() -> None:
    for kind in EventType:
        (status,) = statuses(1, (kind.value, {}))
        assert status is not None
        assert (status in SETTLED) == (kind not in {"accepted", "queued", "attempted", "deferred", "scheduled"})


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", '{"detail": 1}', '{"type":"x","messageId":null}', "\ud800".encode("utf-8", "replace").decode()],
)
def test_a_broken_text_has_no_detail(text: str) -> None:
    assert bytes(rules.detail_of(text)) in {b"{}", b"1"}


def test_events_of_the_account_are_none() -> None:
    row = TailRow(ids.uuid7(), 1, "domain.added", "", None, '{"detail":{}}', None, None, None, None, None, None, [])

    assert list(rules.events([row], [])) == [None]
    assert not rules.is_of_message("domain.added")


def test_filters_pass_over_what_has_no_octets() -> None:
    event = ShownEvent(1, "accepted", b"x", Status.QUEUED, "a.test", "news", frozenset({"a", "b"}))

    assert TailFilters().takes(event)
    assert TailFilters(status=Status.QUEUED, streams=["news"], tags=frozenset({"a"})).takes(event)
    assert not TailFilters(tags=frozenset({"a", "c"})).takes(event)
    assert not TailFilters(streams=["other"]).takes(event)
    assert TailFilters(domains=["a.test"]).takes(event)
    assert not TailFilters(domains=["b.test"]).takes(event)
    assert not TailFilters(status=Status.SENDING).takes(event)
    assert not TailFilters().takes(ShownEvent(2, "", b""))
