"""Fetching of mail of one domain for one connection, and the need for another connection."""

from uuid import UUID

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.queue import DueKey, Row
from engine.delivery.sites import RuleBook
from mta.outbound.backlogs import DEEP_ROWS, together
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites import site as sites
from mta.outbound.sites.pacer import Pacer
from mta.outbound.sites.site import Site, SiteGroup

NOW = 1_000.0
LIMITS = RuleBook().limits("mx.peer.test", ["mx.peer.test"], Settings())


def key(domain: str, shard: int = 0) -> DueKey:
    return DueKey(ids.uuid7(), domain, shard)


def site(waiting: int, *, opening: int = 0, busy_s: tuple[float, ...] = (), greeted: bool = True) -> Site:
    """A site with connections that are being opened, or at work since so many seconds."""
    made = Site("mx.peer.test", SiteGroup(Pacer(LIMITS)))
    for _ in range(waiting):
        made.waiting.put(mail())
    made.workers = len(busy_s)
    made.opening, made.connected = opening, len(busy_s) - opening
    made.greeted = greeted
    made.busy = {number: NOW - seconds for number, seconds in enumerate(busy_s)}
    return made


def mail() -> ActiveDelivery:
    row = Row(
        ids.uuid7(), "peer.test", 0, UUID(int=1), "a.test", '[[0, "ann@peer.test"]]', 1, clock.now(), 0, None, None,
        b"x", False,
    )  # fmt: skip
    return ActiveDelivery(row, 0.0)


# -- digging -----------------------------------------------------------------------------------


def test_mail_of_a_domain_comes_together_and_the_domain_that_waits_longest_first() -> None:
    found = [key(name) for name in ("b.test", "a.test", "b.test", "c.test", "a.test", "b.test")]
    assert [one.domain for one in together(found)] == ["b.test"] * 3 + ["a.test"] * 2 + ["c.test"]
    assert [one for one in together(found) if one.domain == "b.test"] == [found[0], found[2], found[5]]


def test_a_domain_with_much_mail_gives_way_to_the_others_of_its_shard() -> None:
    found = [key("big.test") for _ in range(3 * DEEP_ROWS)] + [key("small.test")]
    chosen = together(found)
    assert chosen == [*found[:DEEP_ROWS], found[-1]]


def test_a_split_domain_gives_way_in_each_of_its_shards() -> None:
    found = [key("big.test", shard) for shard in (1, 2) for _ in range(2 * DEEP_ROWS)]
    assert [one.shard for one in together(found)] == [1] * DEEP_ROWS + [2] * DEEP_ROWS


def test_the_only_domain_of_a_backlog_has_all_of_its_turn() -> None:
    found = [key("big.test") for _ in range(3 * DEEP_ROWS)]
    assert together(found) == found


# -- connections -------------------------------------------------------------------------------


def test_the_first_connection_is_wanted_at_once() -> None:
    assert site(1).wishes(NOW) == 1
    assert site(0).wishes(NOW) == 0


def test_what_waits_is_left_to_the_connection_that_is_being_opened() -> None:
    assert site(sites.WORTH, opening=1, busy_s=(0.9 * sites.PATIENCE_S,)).wishes(NOW) == 0
    assert site(sites.WORTH + 1, opening=1, busy_s=(2 * sites.SLOW_S,)).wishes(NOW) == 1


def test_an_opening_that_hangs_is_not_waited_for_alone() -> None:
    assert site(2, opening=1, busy_s=(1.1 * sites.PATIENCE_S,)).wishes(NOW) == 1


def test_one_waiting_message_opens_one_connection() -> None:
    assert site(1, opening=1, busy_s=(100.0,)).wishes(NOW) == 0
    assert site(2, opening=1, busy_s=(100.0, 100.0)).wishes(NOW) == 1
    assert site(3, opening=2, busy_s=(100.0, 100.0, 100.0)).wishes(NOW) == 1


def test_a_site_that_never_greeted_gets_one_connection_until_it_has() -> None:
    assert site(100, opening=1, busy_s=(100.0,), greeted=False).wishes(NOW) == 0
    assert site(100, greeted=False).wishes(NOW) == 1
    assert site(100, opening=1, busy_s=(100.0,)).wishes(NOW) == 1


def test_a_transaction_shorter_than_an_opening_wants_no_other_connection() -> None:
    here = site(1, busy_s=(4 * sites.SLOW_S,))
    assert here.wishes(NOW) == 1
    here.opens_s = 5 * sites.SLOW_S
    assert here.wishes(NOW) == 0
    here.busy = {0: NOW - 6 * sites.SLOW_S}
    assert here.wishes(NOW) == 1


def test_a_slow_opening_of_before_does_not_hide_a_transaction_that_hangs() -> None:
    here = site(1, busy_s=(1.1 * sites.PATIENCE_S,))
    here.opens_s = 30.0
    assert here.wishes(NOW) == 1
