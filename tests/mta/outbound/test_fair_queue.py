"""The order of deliveries in a site's queue."""

import random
from collections import Counter
from uuid import UUID

import pytest

from engine.base import clock, ids
from engine.delivery.queue import Row
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.fair_queue import LOWEST_EVERY, FairQueue

BIG, SMALL, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


def mail(account: UUID, *, priority: int = 1, size: int = 2_000) -> ActiveDelivery:
    row = Row(
        ids.uuid7(), "peer.test", 0, account, "a.test", '[[0, "ann@peer.test"]]', 1, clock.now(), 0, None, None,
        b"x" * size, False, priority=priority,
    )  # fmt: skip
    return ActiveDelivery(row, 0.0)


def taken(line: FairQueue, count: int) -> list[ActiveDelivery]:
    found = [line.take() for _ in range(count)]
    return [one for one in found if one is not None]


@pytest.mark.exhaustive
def test_one_code_is_not_behind_another_accounts_hundred_thousand() -> None:
    line = FairQueue()
    for _ in range(100_000):
        line.put(mail(BIG))
    code = mail(SMALL)
    line.put(code)
    assert code in taken(line, 30)


def test_the_heads_contain_what_is_taken_next() -> None:
    line = FairQueue()
    for number in range(400):
        line.put(mail((BIG, SMALL, OTHER)[number % 3], priority=number % 4))
    line.peek()
    heads = list(line.heads(10))
    assert len(heads) < 130
    assert all(one in heads for one in taken(line, 10))


def test_accounts_share_a_site_evenly_by_octets() -> None:
    line = FairQueue()
    for _ in range(4_000):
        line.put(mail(BIG))
        line.put(mail(SMALL, size=20_000))
    octets: Counter[UUID] = Counter()
    for one in taken(line, 2_000):
        octets[one.row.account_id] += 4_096 + len(one.row.mime or b"")
    assert 0.9 < octets[BIG] / octets[SMALL] < 1.1


def test_an_accounts_mail_keeps_its_order() -> None:
    line = FairQueue()
    mails = [mail(account) for _ in range(50) for account in (BIG, SMALL, OTHER)]
    for one in mails:
        line.put(one)
    out = taken(line, 150)
    for account in (BIG, SMALL, OTHER):
        assert [one for one in out if one.row.account_id == account] == [
            one for one in mails if one.row.account_id == account
        ]


def test_codes_go_before_transactional_mail_and_that_before_broadcasts() -> None:
    line = FairQueue()
    for priority in (3, 2, 1, 0):
        for _ in range(10):
            line.put(mail(SMALL, priority=priority))
    first = [one.row.priority for one in taken(line, LOWEST_EVERY - 1)]
    assert first == [0] * (LOWEST_EVERY - 1)


def test_broadcasts_do_not_starve_behind_a_stream_of_codes() -> None:
    line = FairQueue()
    for _ in range(100):
        line.put(mail(SMALL, priority=0))
        line.put(mail(BIG, priority=3))
    assert Counter(one.row.priority for one in taken(line, 80))[3] == 80 // LOWEST_EVERY


def test_who_was_looked_at_is_taken() -> None:
    line = FairQueue()
    for _ in range(20):
        for account in (BIG, SMALL):
            line.put(mail(account))
    while line:
        seen = line.peek()
        assert line.take() is seen
    assert line.peek() is None
    assert line.take() is None


def test_who_is_put_first_is_next() -> None:
    line = FairQueue()
    line.put(mail(BIG))
    again = mail(SMALL, priority=3)
    line.put_first(again)
    assert line.take() is again


def test_who_has_most_gives_way_first_and_the_lowest_priority_before_that() -> None:
    line = FairQueue()
    for _ in range(10):
        line.put(mail(BIG, priority=3))
    for _ in range(90):
        line.put(mail(BIG))
    for _ in range(20):
        line.put(mail(SMALL))
    gone = line.shed(70)
    assert Counter((one.row.account_id, one.row.priority) for one in gone) == {(BIG, 3): 10, (BIG, 1): 60}
    assert len(line) == 50
    assert len(line.shed(1_000)) == 50
    assert not line


def test_a_huge_body_waits_its_turns_but_comes() -> None:
    line = FairQueue()
    large = mail(BIG)
    large.row.mime = None
    line.put(large)
    for _ in range(1_000):
        line.put(mail(SMALL))
    out = taken(line, 1_001)
    assert large in out
    assert out[0] is not large


def test_nothing_is_lost_or_doubled_whatever_is_done_to_a_line() -> None:
    rng = random.Random(7)
    line = FairQueue()
    inside: set[int] = set()
    for _ in range(5_000):
        step = rng.random()
        if step < 0.6:
            one = mail(UUID(int=rng.randrange(5)), priority=rng.randrange(4), size=rng.randrange(200_000))
            inside.add(id(one))
            keep.append(one)
            line.put_first(one) if rng.random() < 0.1 else line.put(one)
            continue
        if step < 0.9:
            found = [one for one in [line.take()] if one is not None]
        elif step < 0.95:
            found = line.shed(rng.randrange(5))
        else:
            account = UUID(int=rng.randrange(5))
            found = line.drop(lambda one, whose=account: one.row.account_id == whose and rng.random() < 0.2)  # type: ignore[misc]
        for one in found:
            inside.remove(id(one))
        assert len(line) == len(inside)
    assert {id(one) for one in line} == inside
    assert {id(one) for one in line.clear()} == inside


keep: list[ActiveDelivery] = []
