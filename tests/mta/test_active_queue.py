"""What the active queue holds, and the hints that brought it."""

from datetime import UTC, datetime

from engine.base import ids
from engine.delivery.queue import Row
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery, HintEntry
from mta.outbound.source_ips.unspent_quota import UnspentQuota


def delivery(entry: HintEntry) -> ActiveDelivery:
    row = Row(
        message_id=ids.uuid7(), domain="peer.test", shard=entry.shard, account_id=ids.uuid7(), from_domain="a.test",
        recipients='[[0,"ann@peer.test"]]', total=1, due_at=datetime.now(UTC), attempts=0, signature=None,
        waiting=None, mime=b"", smtputf8=False,
    )  # fmt: skip
    return ActiveDelivery(row, entry, 0.0)


def test_a_forgotten_hint_is_finished_unless_its_delivery_is_in_hand() -> None:
    queue, at_work = ActiveQueue(10, UnspentQuota()), delivery(HintEntry(3, b"1-0", 1))
    queue.add(at_work)

    queue.served({3: [b"1-0", b"2-0"], 4: [b"1-0"]})
    assert queue.take_finished() == {3: [b"2-0"], 4: [b"1-0"]}
    queue.drop(at_work)

    assert queue.take_finished() == {3: [b"1-0"]}


def test_nothing_left_is_nothing_to_finish() -> None:
    queue = ActiveQueue(10, UnspentQuota())
    queue.add(delivery(HintEntry(3, b"1-0", 1)))

    queue.served({3: [b"1-0"]})

    assert queue.take_finished() == {}
