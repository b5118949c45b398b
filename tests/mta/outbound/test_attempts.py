"""Attempts that fail for reasons of our own."""

import orjson
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.queue import Row
from engine.delivery.reply_codes import Category
from engine.sending.settle import DeliveryAttempt, plan
from mta.outbound.attempts import MAX_FAULTS, at_fault, too_late, without_key
from mta.outbound.delivery import ActiveDelivery


def deferred_often(attempts: int) -> ActiveDelivery:
    row = Row(
        message_id=ids.uuid7(), domain="peer.test", shard=0, account_id=ids.uuid7(), from_domain="a.test",
        recipients='[[0, "ann@peer.test"]]', total=1, due_at=clock.now(), attempts=attempts, signature=None,
        waiting=None, mime=b"", smtputf8=False,
    )  # fmt: skip
    return ActiveDelivery(row, 0.0)


@pytest.mark.parametrize("attempts", [0, 9])
def test_faults_of_ours_are_counted_by_themselves(attempts: int) -> None:
    faults = range(1, MAX_FAULTS + 1)
    made = [at_fault(deferred_often(attempts), RuntimeError("broken"), count, Settings()) for count in faults]

    assert [one.next_at is not None for one in made] == [True] * (MAX_FAULTS - 1) + [False]
    assert {_class(one) for one in made} == {Category.LOCAL}  # and of no server


@pytest.mark.parametrize(("attempts", "type_"), [(0, "rejected"), (3, "failed")])
def test_what_ends_without_a_try_counts_none_and_is_rejected_if_it_was_never_tried(attempts: int, type_: str) -> None:
    ends = [without_key(deferred_often(attempts), Settings()), too_late(deferred_often(attempts), Settings())]

    assert [_class(one) for one in ends] == [Category.UNSIGNED, Category.EXPIRED]
    for one, reason in zip(ends, ("domain_removed", "deliver_by_passed"), strict=True):
        ended = plan(one)
        [entry] = ended.entries
        detail = orjson.loads(entry.detail)
        assert (entry.type, detail["reason"], "attempt" in detail) == (type_, reason, False)
        assert [status for _, status in ended.statuses] == [type_]


def _class(attempt: DeliveryAttempt) -> Category | None:
    [result] = attempt.results
    return None if result.outcome is None else result.outcome.category
