"""Blocklist checks against a real DNS server: lists that answer rightly, lists that refuse, and what is kept."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import msgspec
import pytest

from engine.base import clock
from engine.base.settings import Settings, SourceIp
from engine.delivery import sources_store
from engine.delivery.sources import PoolMember
from engine.sending.blocklists import jobs, store
from engine.sending.blocklists.rules import query_name
from engine.sending.blocklists.types import ListFamily, Listing
from engine.store.postgres import open_pool
from ops.local.dns import DnsBehaviour
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account
from tests.harness.blocklists import A_LIST, DOMAIN_LIST, IP, OTHER_LIST, BlocklistWorld, blocklist_world

IP6, OTHER_IP = "2a01:4f8::25", "5.6.7.9"


@pytest.fixture(scope="module")
async def database(lasting_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    pool = await open_pool(await lasting_database(), name="tests", largest=8)
    yield pool
    await pool.close()


@pytest.fixture
async def world(database: asyncpg.Pool, settings: Settings) -> AsyncIterator[BlocklistWorld]:
    async with blocklist_world(database, settings) as made:
        yield made


async def listings_of(world: BlocklistWorld, account: TestAccount) -> list[Listing]:
    """The present listings that concern the account."""
    return list((await store.listings_of_many(world.pool, [account.id]))[account.id])


async def test_a_listed_address_concerns_every_account_until_it_is_delisted(world: BlocklistWorld) -> None:
    account = await make_account(world.pool)
    world.publish(A_LIST, ListFamily.IPV4, IP)

    assert await world.check() == [(IP, A_LIST)]
    [found] = await listings_of(world, account)
    assert found == Listing(IP, "ip", A_LIST, found.listed_since)

    assert await world.check() == [(IP, A_LIST)]
    assert (await listings_of(world, account))[0].listed_since == found.listed_since

    world.zone.set(query_name(IP, ListFamily.IPV4, A_LIST), "A", [])
    assert await world.check() == []
    assert await listings_of(world, account) == []


async def test_a_listed_domain_concerns_the_account_that_holds_it(world: BlocklistWorld) -> None:
    listed, other = await make_account(world.pool), await make_account(world.pool)
    world.publish(DOMAIN_LIST, ListFamily.DOMAIN, listed.domain)
    await world.check()
    found = await store.account_listings(world.pool, [listed.id, other.id], clock.now())

    assert [(one.target, one.kind, one.zone) for one in found[listed.id].listings] == [
        (listed.domain, "domain", "domains")
    ]
    assert found[other.id].listings == ()
    assert {one.measured_state for one in found.values()} == {"measured"}


async def test_unverified_domains_are_not_looked_up(world: BlocklistWorld) -> None:
    pending = await make_account(world.pool, verified=False)
    await world.check()

    assert not [one for one in world.zone.questions if pending.domain in one.name]


async def test_a_list_is_shown_by_its_name_because_its_zone_may_hold_a_key(world: BlocklistWorld) -> None:
    world.publish(f"key.{OTHER_LIST}", ListFamily.IPV4, IP)

    assert await world.check() == [(IP, "other")]


@pytest.mark.parametrize("answer", ["127.0.0.1", "127.255.255.254", "198.51.100.7"])
async def test_an_answer_that_is_no_code_neither_begins_nor_ends_a_listing(world: BlocklistWorld, answer: str) -> None:
    world.publish(A_LIST, ListFamily.IPV4, IP)
    world.zone.set(query_name(IP, ListFamily.IPV4, f"key.{OTHER_LIST}"), "A", [answer])
    assert await world.check() == [(IP, A_LIST)]
    world.zone.set(query_name(IP, ListFamily.IPV4, A_LIST), "A", [answer])

    assert await world.check() == [(IP, A_LIST)]


@pytest.mark.parametrize(
    ("listed_point", "unlisted_point"), [([], []), (["127.255.255.254"], []), (["127.0.0.2"], ["127.0.0.2"])]
)
async def test_a_list_with_a_wrong_test_point_is_not_believed(
    world: BlocklistWorld, listed_point: list[str], unlisted_point: list[str]
) -> None:
    world.zone.set(query_name("127.0.0.2", ListFamily.IPV4, A_LIST), "A", listed_point)
    world.zone.set(query_name("127.0.0.1", ListFamily.IPV4, A_LIST), "A", unlisted_point)
    world.zone.set(query_name(IP, ListFamily.IPV4, A_LIST), "A", ["127.0.0.2"])

    assert await world.check() == []
    trusted = await world.pool.fetchval("SELECT trusted FROM blocklist_zones WHERE name = $1", A_LIST)
    assert trusted is False


async def test_silent_dns_keeps_the_listings_and_makes_the_state_unknown_in_time(world: BlocklistWorld) -> None:
    account = await make_account(world.pool)
    assert await world.state(account) == "unknown"
    world.publish(A_LIST, ListFamily.IPV4, IP)
    await world.check()
    assert await world.state(account) == "measured"

    world.zone.behave_under("list.test", DnsBehaviour(rcode="SERVFAIL"))
    assert await world.check() == [(IP, A_LIST)]
    later = clock.now() + timedelta(seconds=world.settings.blocklist_check_s * 4)
    assert await store.measured_state(world.pool, account.id, later) == "unknown"
    assert len(await listings_of(world, account)) == 1


async def test_a_domain_is_measured_without_a_trusted_list_of_addresses(world: BlocklistWorld) -> None:
    account, pending = await make_account(world.pool), await make_account(world.pool, verified=False)
    world.settings = msgspec.structs.replace(world.settings, blocklist_ip_zones=())
    await world.check()

    assert await world.state(account) == "measured"
    assert await world.state(pending) == "unknown"


async def test_ipv6_addresses_are_asked_of_the_lists_that_cover_them(world: BlocklistWorld) -> None:
    world.settings = msgspec.structs.replace(world.settings, source_ips=(SourceIp(IP), SourceIp(IP6)))
    world.publish(A_LIST, ListFamily.IPV6, IP6)

    assert await world.check() == [(IP6, A_LIST)]
    rows = await world.pool.fetch("SELECT name, trusted FROM blocklist_zones WHERE family = 'ipv6' ORDER BY name")
    assert [tuple(row) for row in rows] == [(A_LIST, True), ("other", False)]


async def test_a_private_source_is_checked_by_the_public_address_of_its_ehlo_name(world: BlocklistWorld) -> None:
    world.settings = msgspec.structs.replace(world.settings, source_ips=(SourceIp("10.0.0.5", "mta.host.test"),))
    world.zone.set("mta.host.test", "A", [IP, "192.168.1.1"])
    world.publish(A_LIST, ListFamily.IPV4, IP)

    assert await world.check() == [(IP, A_LIST)]
    assert await world.pool.fetchval("SELECT array_agg(ip) FROM blocklist_addresses") == [IP]


async def test_addresses_of_other_hosts_are_known_from_pools(world: BlocklistWorld) -> None:
    await sources_store.set_pool(world.pool, "far", [PoolMember(OTHER_IP)])
    world.publish(A_LIST, ListFamily.IPV4, OTHER_IP)
    try:
        assert await world.check() == [(OTHER_IP, A_LIST)]
    finally:
        await sources_store.remove_pool(world.pool, "far")


async def test_a_check_is_repeated_at_the_interval_and_sooner_without_an_answer(world: BlocklistWorld) -> None:
    account = await make_account(world.pool)
    world.zone.behave(query_name(IP, ListFamily.IPV4, A_LIST), DnsBehaviour(rcode="SERVFAIL"))
    world.zone.behave(query_name(IP, ListFamily.IPV4, f"key.{OTHER_LIST}"), DnsBehaviour(rcode="SERVFAIL"))
    began = clock.now()
    await world.check()
    address_at = await world.pool.fetchval("SELECT check_at FROM blocklist_addresses WHERE ip = $1", IP)
    domain_at = await world.pool.fetchval("SELECT blocklist_check_at FROM domains WHERE name = $1", account.domain)

    every = timedelta(seconds=world.settings.blocklist_check_s)
    assert timedelta(seconds=jobs.RETRY_S * 0.8) < address_at - began < every / 2
    assert every * 0.8 < domain_at - began
    world.zone.questions.clear()
    await jobs.check_due(world.pool, world.settings)
    assert not [one for one in world.zone.questions if one.name.endswith("list.test")]


async def test_two_workers_check_each_target_once(world: BlocklistWorld) -> None:
    accounts = [await make_account(world.pool) for _ in range(4)]
    world.publish(DOMAIN_LIST, ListFamily.DOMAIN, *(one.domain for one in accounts))
    done = await asyncio.gather(*[jobs.check_due(world.pool, world.settings) for _ in range(3)])

    assert sum(done) == len(accounts) + 1
    asked = [one.name for one in world.zone.questions if one.name.startswith(accounts[0].domain)]
    assert len(asked) == 1
    assert len(await world.listings()) == len(accounts)


async def test_listings_end_with_their_list_their_address_and_their_domain(world: BlocklistWorld) -> None:
    account = await make_account(world.pool)
    world.publish(A_LIST, ListFamily.IPV4, IP)
    world.publish(f"key.{OTHER_LIST}", ListFamily.IPV4, IP)
    world.publish(DOMAIN_LIST, ListFamily.DOMAIN, account.domain)
    assert len(await world.check()) == 3
    await world.pool.execute("UPDATE domains SET status = 'failed' WHERE name = $1", account.domain)
    await world.pool.execute("UPDATE blocklist_zones SET known_until = now() - interval '1 s' WHERE name = 'other'")
    await jobs.check_due(world.pool, world.settings)
    assert await world.listings() == [(IP, A_LIST)]

    await world.pool.execute("UPDATE blocklist_addresses SET reported_until = now() - interval '1 s'")
    await jobs.check_due(world.pool, msgspec.structs.replace(world.settings, blocklist_ip_zones=()))
    assert await world.listings() == []


async def test_an_address_is_kept_while_dns_does_not_tell_the_addresses(world: BlocklistWorld) -> None:
    world.settings = msgspec.structs.replace(world.settings, source_ips=(SourceIp("10.0.0.5", "mta.host.test"),))
    world.zone.set("mta.host.test", "A", [IP])
    world.publish(A_LIST, ListFamily.IPV4, IP)
    await world.check()
    await world.pool.execute("UPDATE blocklist_addresses SET reported_until = now() - interval '1 s'")
    world.zone.behave("mta.host.test", DnsBehaviour(rcode="SERVFAIL"))

    assert await world.check() == [(IP, A_LIST)]


async def test_without_lists_nothing_is_looked_up(world: BlocklistWorld) -> None:
    await make_account(world.pool)
    settings = msgspec.structs.replace(world.settings, blocklist_ip_zones=(), blocklist_domain_zones=())

    assert await jobs.check_due(world.pool, settings) == 0
    assert not world.zone.questions
