"""Blocklist checks against a real DNS server: lists that answer rightly, lists that refuse, and what is kept."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import msgspec
import pytest

from engine.areas.blocklists import jobs, store
from engine.areas.blocklists.rules import query_name
from engine.areas.blocklists.types import ListFamily, Listing
from engine.base import clock
from engine.base.settings import BlocklistZone, HostPort, Settings, SourceIp
from engine.delivery import sources_store
from engine.delivery.sources import PoolMember
from engine.store.postgres import open_pool
from ops.local.dns import DnsBehaviour, Responder
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account

IP, IP6, OTHER_IP = "5.6.7.8", "2a01:4f8::25", "5.6.7.9"
A_LIST, OTHER_LIST, DOMAIN_LIST = "a.list.test", "b.list.test", "d.list.test"


class World:
    """A database of its own, a DNS server with lists, and settings that name them."""

    def __init__(self, pool: asyncpg.Pool, zone: Responder, settings: Settings) -> None:
        self.pool = pool
        self.zone = zone
        self.settings = msgspec.structs.replace(
            settings,
            dns_servers=(HostPort(*zone.address),),
            source_ips=(SourceIp(IP),),
            blocklist_ip_zones=(BlocklistZone(A_LIST, A_LIST), BlocklistZone(f"key.{OTHER_LIST}", "other")),
            blocklist_domain_zones=(BlocklistZone(DOMAIN_LIST, "domains"),),
        )

    def publish(self, zone: str, family: ListFamily, *targets: str, answer: str = "127.0.0.2") -> None:
        """A list with right test points that names these targets."""
        point = "test" if family is ListFamily.DOMAIN else {"ipv4": "127.0.0.2", "ipv6": "::ffff:7f00:2"}[family]
        for target in (point, *targets):
            self.zone.set(query_name(target, family, zone), "A", [answer])

    async def check(self) -> list[tuple[str, str]]:
        """Check everything now; return the open listings."""
        await self.pool.execute("UPDATE blocklist_addresses SET check_at = '-infinity'")
        await self.pool.execute("UPDATE domains SET blocklist_check_at = '-infinity'")
        await jobs.check_due(self.pool, self.settings)
        return await self.listings()

    async def listings(self) -> list[tuple[str, str]]:
        rows = await self.pool.fetch(
            "SELECT target, zone FROM blocklist_listings WHERE ended_at IS NULL ORDER BY target, zone"
        )
        return [(row["target"], row["zone"]) for row in rows]

    async def state(self, account: TestAccount) -> str:
        return await store.measured_state(self.pool, account.id, clock.now())


@pytest.fixture(scope="module")
async def database(lasting_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    """The job looks at every address and domain that it finds, so it gets a database of its own."""
    pool = await open_pool(await lasting_database(), name="tests", largest=8)
    yield pool
    await pool.close()


@pytest.fixture
async def world(database: asyncpg.Pool, settings: Settings) -> AsyncIterator[World]:
    await database.execute(
        "DELETE FROM blocklist_listings; DELETE FROM blocklist_addresses; DELETE FROM blocklist_zones"
    )
    await database.execute("UPDATE domains SET status = 'pending'")
    async with Responder() as zone:
        made = World(database, zone, settings)
        made.publish(A_LIST, ListFamily.IPV4)
        made.publish(f"key.{OTHER_LIST}", ListFamily.IPV4)
        made.publish(DOMAIN_LIST, ListFamily.DOMAIN)
        yield made


async def test_a_listed_address_concerns_every_account_until_it_is_delisted(world: World) -> None:
    account = await make_account(world.pool)
    world.publish(A_LIST, ListFamily.IPV4, IP)

    assert await world.check() == [(IP, A_LIST)]
    [found] = await store.listings_of(world.pool, account.id)
    assert found == Listing(IP, "ip", A_LIST, found.listed_since)

    assert await world.check() == [(IP, A_LIST)]
    assert (await store.listings_of(world.pool, account.id))[0].listed_since == found.listed_since

    world.zone.set(query_name(IP, ListFamily.IPV4, A_LIST), "A", [])
    assert await world.check() == []
    assert await store.listings_of(world.pool, account.id) == []


async def test_a_listed_domain_concerns_the_account_that_holds_it(world: World) -> None:
    listed, other = await make_account(world.pool), await make_account(world.pool)
    world.publish(DOMAIN_LIST, ListFamily.DOMAIN, listed.domain)
    await world.check()
    found = await store.account_listings(world.pool, [listed.id, other.id], clock.now())

    assert [(one.target, one.kind, one.zone) for one in found[listed.id].listings] == [
        (listed.domain, "domain", "domains")
    ]
    assert found[other.id].listings == ()
    assert {one.measured_state for one in found.values()} == {"measured"}


async def test_unverified_domains_are_not_looked_up(world: World) -> None:
    pending = await make_account(world.pool, verified=False)
    await world.check()

    assert not [one for one in world.zone.questions if pending.domain in one.name]


async def test_a_list_is_shown_by_its_name_because_its_zone_may_hold_a_key(world: World) -> None:
    world.publish(f"key.{OTHER_LIST}", ListFamily.IPV4, IP)

    assert await world.check() == [(IP, "other")]


@pytest.mark.parametrize("answer", ["127.0.0.1", "127.255.255.254", "198.51.100.7"])
async def test_an_answer_that_is_no_code_neither_begins_nor_ends_a_listing(world: World, answer: str) -> None:
    world.publish(A_LIST, ListFamily.IPV4, IP)
    world.zone.set(query_name(IP, ListFamily.IPV4, f"key.{OTHER_LIST}"), "A", [answer])
    assert await world.check() == [(IP, A_LIST)]
    world.zone.set(query_name(IP, ListFamily.IPV4, A_LIST), "A", [answer])

    assert await world.check() == [(IP, A_LIST)]


@pytest.mark.parametrize(
    ("listed_point", "unlisted_point"), [([], []), (["127.255.255.254"], []), (["127.0.0.2"], ["127.0.0.2"])]
)
async def test_a_list_with_a_wrong_test_point_is_not_believed(
    world: World, listed_point: list[str], unlisted_point: list[str]
) -> None:
    world.zone.set(query_name("127.0.0.2", ListFamily.IPV4, A_LIST), "A", listed_point)
    world.zone.set(query_name("127.0.0.1", ListFamily.IPV4, A_LIST), "A", unlisted_point)
    world.zone.set(query_name(IP, ListFamily.IPV4, A_LIST), "A", ["127.0.0.2"])

    assert await world.check() == []
    trusted = await world.pool.fetchval("SELECT trusted FROM blocklist_zones WHERE name = $1", A_LIST)
    assert trusted is False


async def test_silent_dns_keeps_the_listings_and_makes_the_state_unknown_in_time(world: World) -> None:
    account = await make_account(world.pool)
    assert await world.state(account) == "unknown"
    world.publish(A_LIST, ListFamily.IPV4, IP)
    await world.check()
    assert await world.state(account) == "measured"

    world.zone.behave_under("list.test", DnsBehaviour(rcode="SERVFAIL"))
    assert await world.check() == [(IP, A_LIST)]
    later = clock.now() + timedelta(seconds=world.settings.blocklist_check_s * 4)
    assert await store.measured_state(world.pool, account.id, later) == "unknown"
    assert len(await store.listings_of(world.pool, account.id)) == 1


async def test_a_domain_is_measured_without_a_trusted_list_of_addresses(world: World) -> None:
    account, pending = await make_account(world.pool), await make_account(world.pool, verified=False)
    world.settings = msgspec.structs.replace(world.settings, blocklist_ip_zones=())
    await world.check()

    assert await world.state(account) == "measured"
    assert await world.state(pending) == "unknown"


async def test_ipv6_addresses_are_asked_of_the_lists_that_cover_them(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, source_ips=(SourceIp(IP), SourceIp(IP6)))
    world.publish(A_LIST, ListFamily.IPV6, IP6)

    assert await world.check() == [(IP6, A_LIST)]
    rows = await world.pool.fetch("SELECT name, trusted FROM blocklist_zones WHERE family = 'ipv6' ORDER BY name")
    assert [tuple(row) for row in rows] == [(A_LIST, True), ("other", False)]


async def test_a_private_source_is_checked_by_the_public_address_of_its_ehlo_name(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, source_ips=(SourceIp("10.0.0.5", "mta.host.test"),))
    world.zone.set("mta.host.test", "A", [IP, "192.168.1.1"])
    world.publish(A_LIST, ListFamily.IPV4, IP)

    assert await world.check() == [(IP, A_LIST)]
    assert await world.pool.fetchval("SELECT array_agg(ip) FROM blocklist_addresses") == [IP]


async def test_addresses_of_other_hosts_are_known_from_pools(world: World) -> None:
    await sources_store.set_pool(world.pool, "far", [PoolMember(OTHER_IP)])
    world.publish(A_LIST, ListFamily.IPV4, OTHER_IP)
    try:
        assert await world.check() == [(OTHER_IP, A_LIST)]
    finally:
        await sources_store.remove_pool(world.pool, "far")


async def test_a_check_is_repeated_at_the_interval_and_sooner_without_an_answer(world: World) -> None:
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


async def test_two_workers_check_each_target_once(world: World) -> None:
    accounts = [await make_account(world.pool) for _ in range(4)]
    world.publish(DOMAIN_LIST, ListFamily.DOMAIN, *(one.domain for one in accounts))
    done = await asyncio.gather(*[jobs.check_due(world.pool, world.settings) for _ in range(3)])

    assert sum(done) == len(accounts) + 1
    asked = [one.name for one in world.zone.questions if one.name.startswith(accounts[0].domain)]
    assert len(asked) == 1
    assert len(await world.listings()) == len(accounts)


async def test_listings_end_with_their_list_their_address_and_their_domain(world: World) -> None:
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


async def test_an_address_is_kept_while_dns_does_not_tell_the_addresses(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, source_ips=(SourceIp("10.0.0.5", "mta.host.test"),))
    world.zone.set("mta.host.test", "A", [IP])
    world.publish(A_LIST, ListFamily.IPV4, IP)
    await world.check()
    await world.pool.execute("UPDATE blocklist_addresses SET reported_until = now() - interval '1 s'")
    world.zone.behave("mta.host.test", DnsBehaviour(rcode="SERVFAIL"))

    assert await world.check() == [(IP, A_LIST)]


async def test_without_lists_nothing_is_looked_up(world: World) -> None:
    await make_account(world.pool)
    settings = msgspec.structs.replace(world.settings, blocklist_ip_zones=(), blocklist_domain_zones=())

    assert await jobs.check_due(world.pool, settings) == 0
    assert not world.zone.questions
