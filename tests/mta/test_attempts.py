"""What an attempt becomes when nothing of it was the servers' doing."""

import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.queue import Row
from mta.outbound.attempts import MOST_FAULTS, at_fault
from mta.outbound.prepare import Delivery


def deferred_often(attempts: int) -> Delivery:
    row = Row(
        message_id=ids.uuid7(), domain="peer.test", shard=0, account_id=ids.uuid7(), from_domain="a.test",
        recipients='[[0, "ann@peer.test"]]', total=1, due_at=clock.now(), attempts=attempts, signature=None,
        waiting=None, mime=b"", smtputf8=False,
    )  # fmt: skip
    return Delivery(row, None, 0.0)


@pytest.mark.parametrize("attempts", [0, 9])
def test_faults_of_ours_are_counted_by_themselves(attempts: int) -> None:
    faults = range(1, MOST_FAULTS + 1)
    made = [at_fault(deferred_often(attempts), RuntimeError("broken"), count, Settings()) for count in faults]

    assert [one.next_at is not None for one in made] == [True] * (MOST_FAULTS - 1) + [False]
