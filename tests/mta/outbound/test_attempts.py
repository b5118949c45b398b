"""Attempts that fail for reasons of our own."""

import orjson
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.queue import Row
from engine.delivery.reply_codes import Category
from engine.flows.sending.settle import DeliveryAttempt, plan
from mta.outbound.attempts import MAX_FAULTS, at_fault, without_key, without_room
from mta.outbound.delivery import ActiveDelivery


def deferred_often(attempts: int) -> ActiveDelivery:
    row = Row(
        message_id=ids.uuid7(), domain="peer.test", shard=0, account_id=ids.uuid7(), from_domain="a.test",
        recipients='[[0, "ann@peer.test"]]', total=1, due_at=clock.now(), attempts=attempts, signature=None,
        waiting=None, mime=b"", smtputf8=False,
    )  # fmt: skip
    return ActiveDelivery(row, None, 0.0)


@pytest.mark.parametrize("attempts", [0, 9])
def test_faults_of_ours_are_counted_by_themselves(attempts: int) -> None:
    faults = range(1, MAX_FAULTS + 1)
    made = [at_fault(deferred_often(attempts), RuntimeError("broken"), count, Settings()) for count in faults]

    assert [one.next_at is not None for one in made] == [True] * (MAX_FAULTS - 1) + [False]
    assert {_class(one) for one in made} == {Category.LOCAL}  # and of no server


def test_what_ends_without_a_try_counts_none() -> None:
    untried = [without_key(deferred_often(3), Settings()), without_room(deferred_often(3), Settings())]

    assert [_class(one) for one in untried] == [Category.UNSIGNED, Category.LOCAL]
    for one in untried:
        assert not one.made
        [entry] = plan(one).entries
        assert (entry.type, "attempt" in orjson.loads(entry.detail)) == ("failed", False)


def _class(attempt: DeliveryAttempt) -> Category | None:
    [result] = attempt.results
    return None if result.outcome is None else result.outcome.category
