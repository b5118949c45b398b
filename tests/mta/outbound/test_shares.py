"""Memory limits per process for mail to servers that never answer."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from engine.base import clock, ids
from engine.delivery.queue import Outline, Row
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.shares import MAX_PUT_BACK, MAX_UNPROVEN, MIN_SHARE, SHARED, UNPROVEN, overflow, within_shares
from mta.outbound.sites.proven_domains import MAX_DOMAINS, PROVEN_S, ProvenDomains

LIMIT = 200
ANN, BOB = UUID(int=1), UUID(int=2)


def proven(*domains: str) -> ProvenDomains:
    made = ProvenDomains(lambda: 1_000.0)
    for domain in domains:
        made.answered(domain)
    return made


def mail(account: UUID, domain: str, taken_at: float = 0.0, priority: int = 1) -> ActiveDelivery:
    row = Row(
        ids.uuid7(), domain, 0, account, "a.test", f'[[0, "ann@{domain}"]]', 1, clock.now(), 0, None, None, b"x", False,
        priority=priority,
    )  # fmt: skip
    return ActiveDelivery(row, taken_at)


def outlines(account: UUID, domain: str, count: int) -> list[Outline]:
    return [Outline(ids.uuid7(), 0, account, 1, domain) for _ in range(count)]


def counted(held: Sequence[ActiveDelivery]) -> Counter[tuple[str, UUID, int]]:
    return Counter([(one.row.domain, one.row.account_id, one.row.priority) for one in held])


def chosen(rows: Sequence[Outline], held: Sequence[ActiveDelivery], known: ProvenDomains) -> list[Outline]:
    keys = within_shares(rows, counted(held), LIMIT, known)
    return [row for row in rows if (row.shard, row.message_id) in keys]


def test_mail_for_silent_domains_takes_no_share_from_the_same_accounts_proven_ones() -> None:
    held = [mail(ANN, f"silent{number}.test") for number in range(LIMIT)]
    own = outlines(ANN, "well.test", 10)
    assert chosen(own, held, proven("well.test")) == own
    fresh = outlines(BOB, "new.test", 1)
    keys = within_shares([*fresh, *own], counted(held), LIMIT, proven("well.test"))
    assert next(iter(keys)) == (0, own[0].message_id)


def test_an_account_has_a_share_of_what_proven_domains_may_take() -> None:
    held = [mail(ANN, "well.test") for _ in range(100)]
    assert chosen(outlines(ANN, "well.test", 10), held, proven("well.test")) == []
    assert len(chosen(outlines(BOB, "well.test", 100), held, proven("well.test"))) == int(SHARED * LIMIT)
    many = [mail(UUID(int=10 + number), "well.test") for number in range(100)]
    assert len(chosen(outlines(BOB, "well.test", 100), many, proven("well.test"))) == MIN_SHARE


def test_broadcasts_use_up_no_share_of_the_same_accounts_other_mail() -> None:
    broadcasts = [mail(ANN, "well.test", priority=3) for _ in range(100)]
    fresh = outlines(ANN, "well.test", 10)
    assert chosen(fresh, broadcasts, proven("well.test")) == fresh


def test_an_account_that_holds_nothing_may_try_a_new_domain_beside_a_flood() -> None:
    held = [mail(ANN, f"silent{number}.test") for number in range(int(UNPROVEN * LIMIT))]
    assert chosen(outlines(ANN, "new.test", 5), held, proven()) == []
    assert len(chosen(outlines(BOB, "new.test", 5), held, proven())) == 1


def test_a_thousand_accounts_leave_room_for_proven_domains() -> None:
    rows = [one for number in range(1_000) for one in outlines(UUID(int=10 + number), f"silent{number}.test", 1)]
    assert len(chosen(rows, [], proven())) == int(MAX_UNPROVEN * LIMIT)


def test_what_is_too_much_goes_back_from_who_has_most_and_the_oldest_first() -> None:
    few = [mail(BOB, "new.test", taken_at=0.0)]
    many = [mail(ANN, f"silent{number}.test", taken_at=float(number)) for number in range(LIMIT)]
    well = [mail(ANN, "well.test", taken_at=-1.0) for _ in range(50)]
    excess = overflow([*few, *many, *well], LIMIT, proven("well.test"), ())
    assert len(excess) == min(MAX_PUT_BACK, 1 + LIMIT - int(MAX_UNPROVEN * LIMIT))
    assert {one.row.key for one in excess} == {one.row.key for one in many[: len(excess)]}


def test_what_a_connection_is_opened_for_or_has_taken_stays() -> None:
    held = [mail(ANN, f"silent{number}.test", taken_at=float(number)) for number in range(LIMIT)]
    held[0].waits = False
    excess = overflow(held, LIMIT, proven(), {held[1]})
    assert held[0] not in excess
    assert held[1] not in excess
    assert len(excess) == min(MAX_PUT_BACK, LIMIT - int(MAX_UNPROVEN * LIMIT))


def test_nothing_goes_back_while_there_is_room() -> None:
    assert overflow([mail(ANN, "silent.test") for _ in range(int(MAX_UNPROVEN * LIMIT))], LIMIT, proven(), ()) == []


def test_a_domain_is_proven_for_a_while_and_until_it_fails() -> None:
    now = 1_000.0
    known = ProvenDomains(lambda: now)
    known.answered("well.test")
    assert "well.test" in known
    known.failed("well.test")
    assert "well.test" not in known
    known.answered("well.test")
    now += PROVEN_S + 1
    assert "well.test" not in known


def test_known_domains_are_bounded() -> None:
    known = proven(*[f"d{number}.test" for number in range(MAX_DOMAINS + 1)])
    assert len(known._until) == MAX_DOMAINS
    assert "d0.test" not in known
