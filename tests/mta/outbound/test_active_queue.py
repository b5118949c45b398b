"""The deliveries in the active queue."""

from datetime import UTC, date, datetime

from engine.base import ids
from engine.delivery.queue import Row
from engine.delivery.sources_store import Taken
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.source_ips.unspent_quota import UnspentQuota


def delivery() -> ActiveDelivery:
    row = Row(
        message_id=ids.uuid7(), domain="peer.test", shard=3, account_id=ids.uuid7(), from_domain="a.test",
        recipients='[[0,"ann@peer.test"]]', total=1, due_at=datetime.now(UTC), attempts=0, signature=None,
        waiting=None, mime=b"", smtputf8=False,
    )  # fmt: skip
    return ActiveDelivery(row, 0.0)


def test_the_queue_asks_for_more_once_few_enough_deliveries_are_left() -> None:
    queue = ActiveQueue(10, UnspentQuota())
    held = [delivery() for _ in range(3)]
    for one in held:
        queue.add(one)
    queue.refill_below(1)

    queue.drop(held[0])
    assert not queue.refill.is_set()
    queue.drop(held[1])
    assert queue.refill.is_set()

    queue.refill.clear()
    queue.refill_below(None)
    queue.drop(held[2])
    assert not queue.refill.is_set()


def test_warm_up_quota_of_a_dropped_delivery_is_counted_once() -> None:
    unspent = UnspentQuota()
    queue, one = ActiveQueue(10, unspent), delivery()
    one.taken = Taken(date(2026, 11, 22), "192.0.2.1", "mx.peer.test")
    queue.add(one)

    queue.drop(one)
    queue.drop(one)

    assert unspent.take() == {Taken(date(2026, 11, 22), "192.0.2.1", "mx.peer.test"): 1}
    assert not unspent
