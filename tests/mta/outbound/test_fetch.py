"""Fetching from the queue by hint and by due time, and checks before the connection."""

import asyncio

import msgspec
import pytest

from engine.delivery.hints import Hints
from engine.sending.accept import Acceptor
from engine.store import redis as redis_store
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites import site as sites
from mta.outbound.suppression_check import SuppressionCheck
from tests.harness.accounts import make_account
from tests.harness.outbound import BRIEF_LEASE_S, World
from tests.harness.patience import PATIENCE_S

# -- suppressions ------------------------------------------------------------------------------


async def test_an_address_suppressed_while_its_mail_waits_is_not_written_to(here: World) -> None:
    message = await here.send("ann@peer.test", "bob@peer.test")
    await here.pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'ann@peer.test', 'complaint')",
        here.account.id,
    )
    await here.mta()
    await here.until_idle()

    assert await here.statuses(message) == {"ann@peer.test": "rejected", "bob@peer.test": "delivered"}
    assert sorted(await here.steps(message)) == ["accepted", "attempted", "delivered", "suppressed"]
    assert dict(await here.waybill(message))["suppressed"]["reason"] == "complaint"
    assert [one.recipients for one in here.sink.messages] == [("bob@peer.test",)]


@pytest.mark.parametrize(
    ("written", "suppressed", "reason"),
    [
        ("ann@peer.test", "ann@peer.test", "manual"), ("ANN.I@Peer.test", "ann.i@peer.test", "complaint"),
        ("JÜRGEN@peer.test", "jürgen@peer.test", "complaint"),
        ("a@bücher.test", "a@xn--bcher-kva.test", "complaint"),
    ],
)  # fmt: skip
async def test_mail_to_a_suppressed_address_makes_no_connection_however_it_is_written(
    here: World, written: str, suppressed: str, reason: str
) -> None:
    here.domain("xn--bcher-kva.test")
    message = await here.send(written)
    await here.pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, $2, $3)",
        here.account.id, suppressed, reason,
    )  # fmt: skip
    await here.mta()
    await here.until_idle()

    assert await here.status(message) == "rejected"
    assert await here.steps(message) == ["accepted", "suppressed"]
    assert here.sink.connections == 0


async def test_who_unsubscribed_while_transactional_mail_waits_still_gets_it(here: World) -> None:
    message = await here.send("ann@peer.test")
    await here.pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'ann@peer.test', 'unsubscribe')",
        here.account.id,
    )
    await here.mta()
    await here.until_idle()

    assert await here.status(message) == "delivered"


@pytest.mark.exhaustive
async def test_suppressions_of_mail_that_waits_long_are_checked_ahead_of_its_turn(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check at its turn would keep it from being pipelined behind the message before."""
    at_their_turn = []
    repeat = SuppressionCheck.repeat

    async def counted(check: SuppressionCheck, delivery: ActiveDelivery) -> None:
        at_their_turn.append(delivery)
        await repeat(check, delivery)

    monkeypatch.setattr(SuppressionCheck, "repeat", counted)
    monkeypatch.setattr(sites, "AHEAD_S", 0.9 * sites.STALE_S)  # the checks of several seconds are in time
    here.sink.script(".", delay_s=2.5 * sites.STALE_S / 50)
    await here.send_many(50, lambda n: f"reader{n}@peer.test")
    await here.mta(site_connections=1)
    await here.until(lambda: here.sink.count >= 3)
    await here.pool.execute(
        "INSERT INTO suppressions (account_id, address, reason)"
        " SELECT $1, 'reader' || n || '@peer.test', 'complaint' FROM generate_series(0, 49) AS n",
        here.account.id,
    )
    await here.until_idle()

    assert at_their_turn == []
    assert here.sink.count < 50  # those that were not checked again yet are sent


# -- hints -------------------------------------------------------------------------------------


def acceptor_of_patience(here: World) -> Acceptor:
    """An acceptor whose mail falls due after the end of every test, so that only hints lead to it."""
    patient = msgspec.structs.replace(here.settings, fresh_due_s=600.0)
    return Acceptor(here.pool, here.hints, patient)


async def test_a_hint_brings_mail_out_before_it_is_due(here: World) -> None:
    await here.mta()
    await here.until(lambda: len(here.mtas[0].member.owned) == here.settings.shards)
    message = await here.send("ann@peer.test", acceptor=acceptor_of_patience(here))
    await here.until_step(message, "delivered")


async def test_lost_hints_are_made_up_for_by_the_due_time(here: World) -> None:
    messages = await here.send_many(20, lambda n: f"reader{n}@peer.test")
    await here.flush_hints()
    await here.mta()
    await here.until_idle()

    assert here.sink.count == 20
    assert {await here.status(message) for message in messages} == {"delivered"}


async def test_mail_accepted_without_valkey_is_found_by_its_due_time(here: World) -> None:
    nowhere = redis_store.connect("unix:///nonexistent/valkey.sock")
    deaf = Acceptor(here.pool, Hints(nowhere), here.settings)
    await here.mta()
    message = await here.send("ann@peer.test", acceptor=deaf)
    await here.until_step(message, "delivered")
    await nowhere.aclose()


async def test_streams_that_vanish_under_the_reader_are_made_again(here: World) -> None:
    mta = await here.mta()
    await here.until(lambda: len(mta.member.owned) == here.settings.shards)
    first = await here.send("ann@peer.test")
    await here.until_step(first, "delivered")
    await here.flush_hints()
    await asyncio.sleep(0.1)
    second = await here.send("bob@peer.test")
    await here.until_idle()

    assert await here.status(second) == "delivered"
    assert here.sink.count == 2


async def test_mail_hinted_at_many_times_is_delivered_once(here: World) -> None:
    messages = await here.send_many(20, lambda n: f"reader{n}@peer.test")
    for message in messages:
        await here.hint_again(message, "peer.test", times=3)
    await here.mta()
    for message in messages:
        await here.hint_again(message, "peer.test")
    await here.until_idle()
    await asyncio.sleep(0.3)

    assert here.sink.count == 20


async def test_a_hint_at_settled_mail_leads_to_nothing(here: World) -> None:
    await here.mta()
    message = await here.send("ann@peer.test")
    await here.until_step(message, "delivered")
    await here.hint_again(message, "peer.test", times=5)
    await asyncio.sleep(1.5)

    assert here.sink.count == 1
    assert await here.steps(message) == ["accepted", "attempted", "delivered"]


async def test_hints_of_a_crashed_process_are_read_by_the_next_owner_before_the_mail_is_due(here: World) -> None:
    first = await here.mta(lease_s=BRIEF_LEASE_S)
    await here.until(lambda: len(first.member.owned) == here.settings.shards)
    await first.crash()
    here.mtas.remove(first)
    message = await here.send("ann@peer.test", acceptor=acceptor_of_patience(here))
    await here.mta("mta-2", lease_s=BRIEF_LEASE_S)
    await here.until_step(message, "delivered")


# -- bounds and faults -------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_more_mail_than_fits_in_hand_is_delivered_all_the_same(here: World) -> None:
    for number in range(20):
        here.domain(f"d{number}.test")
    await here.send_many(200, lambda n: f"reader{n}@d{n % 20}.test")
    mta = await here.mta(mta_active_limit=10)
    most = 0
    async with asyncio.timeout(PATIENCE_S):
        while here.sink.count < 200:
            most = max(most, mta.outbound.in_hand)
            await asyncio.sleep(0.002)
    await here.until_idle()

    assert here.sink.count == 200
    assert most <= 20  # hints and due times may both find room at the same moment


@pytest.mark.exhaustive
async def test_a_queue_for_one_site_drains_without_pauses(here: World) -> None:
    """What is beyond a site's share of the hand waits in Postgres, but not while the site has nothing to do."""
    await here.send_many(500, lambda n: f"reader{n}@peer.test")
    await here.mta(mta_active_limit=200)
    await here.sink.until(500, timeout_s=PATIENCE_S)


async def test_a_message_that_can_not_be_signed_costs_itself_only(here: World) -> None:
    other = await make_account(here.pool)
    broken = await here.send("ann@peer.test", account=other)
    await here.pool.execute(
        "UPDATE domain_keys SET sealed_key = '\\x00' FROM domains d WHERE d.id = domain_id AND d.account_id = $1",
        other.id,
    )
    messages = await here.send_many(10, lambda n: f"reader{n}@peer.test")
    await here.mta()
    await here.until_step(broken, "failed")

    for message in messages:
        assert await here.steps(message) == ["accepted", "attempted", "delivered"]
    assert here.sink.count == 10
