"""Several source addresses end to end: binding and greeting, pools by stream, windows, refused addresses."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from engine.base import clock
from engine.base.settings import SourceIp
from engine.delivery import sources_store
from engine.delivery.sources import Assignment, PoolMember
from mta.outbound.source_ips import health as source_health
from ops.commands import site as ops_sites
from ops.local.sink_session import SinkSession
from tests.harness.accounts import make_account
from tests.harness.outbound import CountingSink, World
from tests.harness.patience import PATIENCE_S
from tests.harness.site_rules import set_rule

A, B = "127.0.0.2", "127.0.0.3"
BOTH = (SourceIp(A, "mta-a.sources.test"), SourceIp(B, "mta-b.sources.test"))
SERVER = "127.0.0.20"
BLOCKED = "554 5.7.1 Service unavailable; client host blocked using zen.spamhaus.org"


class Witness(CountingSink):
    """A server that sees who calls, by which name, and for whom; some it does not want."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.came: list[tuple[str, str, tuple[str, ...]]] = []  # address, greeting, recipients
        self.callers: Counter[str] = Counter()
        self.unwanted: set[str] = set()

    def joined(self, conversation: SinkSession) -> bool:
        self.callers[caller(conversation)] += 1
        if caller(conversation) in self.unwanted:
            conversation._scripted_reply = BLOCKED
        return super().joined(conversation)

    def accept(self, conversation: SinkSession, content: bytes) -> str:
        self.came.append((caller(conversation), conversation.helo, tuple(conversation.recipients)))
        return super().accept(conversation, content)

    @property
    def by_source(self) -> Counter[str]:
        return Counter(ip for ip, _, _ in self.came)


def caller(conversation: SinkSession) -> str:
    assert conversation._transport is not None
    return str(conversation._transport.get_extra_info("peername")[0])


@pytest.fixture
async def server(here: World) -> AsyncIterator[Witness]:
    """The mail server of s0.test to s39.test, each a site of its own, and of hoster.test's customers."""
    sink = Witness(name="mx.sources.test")
    await sink.start(SERVER, here.settings.sink_port)
    for number in range(40):
        here.domain(f"s{number}.test", SERVER)
        here.domain(f"c{number}.test", SERVER, mx="mx.hoster.test")
    yield sink
    await sink.stop()


async def attempted(here: World, message: UUID) -> dict[str, Any]:
    return [detail for kind, detail in await here.waybill(message) if kind == "attempted"][-1]


# -- binding -----------------------------------------------------------------------------------


async def test_mail_leaves_from_its_source_with_that_sources_name_and_the_waybill_says_so(
    here: World, server: Witness
) -> None:
    await here.mta(source_ips=(BOTH[0],))
    message = await here.send("ann@s0.test")
    await here.until_step(message, "delivered")

    assert server.came == [(A, "mta-a.sources.test", ("ann@s0.test",))]
    assert (await attempted(here, message))["source_ip"] == A


async def test_a_source_without_a_name_greets_as_the_mail_host(here: World, server: Witness) -> None:
    await here.mta(source_ips=(SourceIp(A),))
    await here.until_step(await here.send("ann@s0.test"), "delivered")

    assert server.came[0][:2] == (A, here.settings.mail_host)


async def test_without_sources_the_waybill_names_none(here: World, server: Witness) -> None:
    await here.mta()
    message = await here.send("ann@s0.test")
    await here.until_step(message, "delivered")

    assert server.came[0][:2] == ("127.0.0.1", here.settings.mail_host)
    assert "source_ip" not in await attempted(here, message)


async def test_an_attempt_that_reached_nobody_names_its_source(here: World) -> None:
    here.domain("dead.test", World.NOBODY)
    message = await here.send("ann@dead.test")
    await here.mta(source_ips=(BOTH[0],), retry_ladder_s=(60.0,))
    await here.until_step(message, "deferred")

    assert (await attempted(here, message))["source_ip"] == A


async def test_a_site_with_ipv6_alone_is_reached_from_an_ipv6_source_or_else_as_the_system_likes(here: World) -> None:
    server = Witness(name="mx6.sources.test")
    try:
        await server.start("::1", here.settings.sink_port)
    except OSError:
        pytest.skip("this host has no IPv6 on loopback")
    here.dns.set("six.test", "MX", ["10 mx.six.test."])
    here.dns.set("mx.six.test", "AAAA", ["::1"])
    mta = await here.mta(source_ips=(BOTH[0],))
    first = await here.send("ann@six.test")
    await here.until_step(first, "delivered")
    await mta.stop()
    here.mtas.clear()
    await here.mta("mta-2", source_ips=(BOTH[0], SourceIp("::1", "mta6.sources.test")))
    second = await here.send("bob@six.test")
    await here.until_step(second, "delivered")
    await server.stop()

    assert [helo for _, helo, _ in server.came] == [here.settings.mail_host, "mta6.sources.test"]
    assert "source_ip" not in await attempted(here, first)
    assert (await attempted(here, second))["source_ip"] == "::1"


async def test_a_site_that_is_not_reached_over_one_family_is_tried_over_the_other(here: World) -> None:
    server = Witness(name="mx6.sources.test")
    try:
        await server.start("::1", here.settings.sink_port)
    except OSError:
        pytest.skip("this host has no IPv6 on loopback")
    here.dns.set("both.test", "MX", ["10 mx.both.test."])
    here.dns.set("mx.both.test", "A", [World.NOBODY])
    here.dns.set("mx.both.test", "AAAA", ["::1"])
    await here.mta(source_ips=(BOTH[0], SourceIp("::1")), retry_ladder_s=(0.1,))
    messages = await here.send_many(10, lambda n: f"reader{n}@both.test")
    await here.until_idle()
    await server.stop()

    assert {await here.status(message) for message in messages} == {"delivered"}
    assert server.by_source == {"::1": 10}


# -- choosing ----------------------------------------------------------------------------------


async def test_a_site_has_an_accounts_mail_from_one_address_and_many_sites_from_all(
    here: World, server: Witness
) -> None:
    await here.mta(source_ips=BOTH)
    await here.send_many(120, lambda n: f"reader{n}@s{n % 40}.test")
    await here.until_idle()

    seen = {(ip, recipients[0].split("@")[1]) for ip, _, recipients in server.came}
    assert len(server.came) == 120
    assert len(seen) == 40
    assert min(Counter(ip for ip, _ in seen).values()) >= 8


async def test_an_assigned_streams_mail_leaves_from_its_pool_within_a_second(here: World, server: Witness) -> None:
    await here.pool.execute("INSERT INTO streams (account_id, slug, name) VALUES ($1, 'news', 'News')", here.account.id)
    await sources_store.set_pool(here.pool, "bulk", (PoolMember(B),))
    await sources_store.set_pool(here.pool, "codes", (PoolMember(A),))
    await sources_store.assign(here.pool, Assignment("news", None, "bulk"))
    await sources_store.assign(here.pool, Assignment("*", here.account.id, "codes"))
    await here.mta(source_ips=BOTH)

    async def news(number: int) -> UUID:
        return await here.send(f"reader{number}@s{number}.test", stream="news")

    await asyncio.gather(*[news(number) for number in range(20)])
    await here.until_idle()
    assert server.by_source == {A: 20}  # the account's own word goes before everybody's

    await sources_store.unassign(here.pool, "*", here.account.id)
    await asyncio.sleep(1.0)
    server.came.clear()
    await asyncio.gather(*[news(number) for number in range(20)])
    await here.until_idle()
    assert server.by_source == {B: 20}


async def test_two_accounts_of_one_site_keep_to_their_own_pools(here: World, server: Witness) -> None:
    other = await make_account(here.pool)
    await sources_store.set_pool(here.pool, "theirs", (PoolMember(B),))
    await sources_store.set_pool(here.pool, "ours", (PoolMember(A),))
    await sources_store.assign(here.pool, Assignment("*", None, "ours"))
    await sources_store.assign(here.pool, Assignment("*", other.id, "theirs"))
    await here.mta(source_ips=BOTH)
    for number in range(5):
        await here.send(f"ours{number}@s0.test")
        await here.send(f"theirs{number}@s0.test", account=other)
    await here.until_idle()

    assert {(ip, recipients[0][:4]) for ip, _, recipients in server.came} == {(A, "ours"), (B, "thei")}


async def test_a_pool_without_an_address_of_this_host_falls_back_to_all(here: World, server: Witness) -> None:
    await sources_store.set_pool(here.pool, "elsewhere", (PoolMember("192.0.2.77"),))
    await sources_store.assign(here.pool, Assignment("*", None, "elsewhere"))
    await here.mta(source_ips=(BOTH[0],))
    await here.until_step(await here.send("ann@s0.test"), "delivered")

    assert server.by_source == {A: 1}


# -- windows -----------------------------------------------------------------------------------


async def test_each_source_has_a_window_of_its_own_and_the_operator_sees_it(here: World, server: Witness) -> None:
    await set_rule(here.pool, "mx.s0.test", {"connections": 1}, "a test")
    other = await make_account(here.pool)
    await sources_store.set_pool(here.pool, "a", (PoolMember(A),))
    await sources_store.set_pool(here.pool, "b", (PoolMember(B),))
    await sources_store.assign(here.pool, Assignment("*", here.account.id, "a"))
    await sources_store.assign(here.pool, Assignment("*", other.id, "b"))
    server.script(".", delay_s=0.1)
    mta = await here.mta(source_ips=BOTH)
    for number in range(10):
        await here.send(f"ours{number}@s0.test")
        await here.send(f"theirs{number}@s0.test", account=other)
    await here.until_idle()
    await mta.outbound.scheduler._show()
    settings = msgspec.structs.replace(here.settings, source_ips=BOTH)
    shown = await ops_sites.limits_of(here.pool, settings, "s0.test")

    assert server.most_open == 2
    assert {(one["site"], one["source"]) for one in shown["processes"]} == {
        (f"mx.s0.test@{A}", A), (f"mx.s0.test@{B}", B),
    }  # fmt: skip


# -- refusals ----------------------------------------------------------------------------------


async def fits(here: World, server: Witness, ip: str) -> str:
    """A domain whose mail of this account leaves from that address, as long as nothing speaks against it."""
    message = {}
    for number in range(40):
        message[number] = await here.send(f"probe@s{number}.test")
    await here.until_idle()
    chosen = next(recipients[0] for source, _, recipients in server.came if source == ip)
    server.came.clear()
    return chosen.split("@")[1]


async def test_an_address_that_a_site_refuses_is_spared_there_and_others_carry_its_mail(
    here: World, server: Witness
) -> None:
    await here.mta(source_ips=BOTH, messages_per_connection=1, retry_ladder_s=(0.2,))
    domain = await fits(here, server, A)
    server.unwanted = {A}
    messages = await here.send_many(12, lambda n: f"reader{n}@{domain}")
    await here.until_idle()
    refused = server.callers[A]
    await here.send_many(12, lambda n: f"later{n}@{domain}")
    await here.until_idle()
    async with asyncio.timeout(PATIENCE_S):
        while not (rests := await sources_store.rests_of(here.pool, A, clock.now(), 10)):
            await asyncio.sleep(0.1)

    assert {await here.status(message) for message in messages} == {"delivered"}
    assert server.by_source == {B: 24}
    assert server.callers[A] == refused  # nobody asked again
    assert [(one.site, one.said) for one in rests] == [(f"mx.{domain}", BLOCKED)]
    assert rests[0].until - clock.now() > timedelta(minutes=10)

    server.unwanted.clear()
    await here.send_many(40, lambda n: f"other{n}@s{n}.test")
    await here.until_idle()
    assert server.by_source[A] >= 8  # other sites still have it


async def test_another_process_hears_of_a_refusal_and_a_restart_forgets_none(
    here: World, server: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mta.outbound.source_ips.assignment.EXCHANGE_S", 0.2)
    mta = await here.mta(source_ips=BOTH)
    domain = await fits(here, server, A)
    site = f"mx.{domain}"
    now = clock.now()
    rest = sources_store.Rest(A, site, now + timedelta(hours=1), 1, BLOCKED, now)
    await sources_store.write_rests(here.pool, [rest])
    await here.until(lambda: mta.outbound.sources.health.spared(A, site))
    await here.until_step(await here.send(f"ann@{domain}"), "delivered")
    await mta.stop()
    here.mtas.clear()
    await here.mta("mta-2", source_ips=BOTH)
    await asyncio.sleep(1.0)
    await here.until_step(await here.send(f"bob@{domain}"), "delivered")

    assert server.by_source == {B: 2}


async def test_a_spared_address_is_tried_again_by_one_message_and_used_again_when_that_arrives(
    here: World, server: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_health, "SETTLED_S", 0.0)
    mta = await here.mta(source_ips=BOTH)
    domain = await fits(here, server, A)
    health = mta.outbound.sources.health
    past = clock.now() - timedelta(minutes=1)
    health._put(sources_store.Rest(A, f"mx.{domain}", past, 1, BLOCKED, past))
    server.script(".", delay_s=0.3)
    await here.send_many(8, lambda n: f"reader{n}@{domain}")
    await here.until_idle()
    assert server.by_source == {A: 1, B: 7}

    await here.send_many(8, lambda n: f"later{n}@{domain}")
    await here.until_idle()
    assert server.by_source == {A: 9, B: 7}


async def test_where_there_is_no_other_address_the_refused_one_is_used_at_the_servers_pace(
    here: World, server: Witness
) -> None:
    await here.mta(source_ips=(BOTH[0],), retry_ladder_s=(0.2,))
    server.script("MAIL", "421 4.7.0 Messages from your address temporarily deferred due to poor reputation", times=1)
    message = await here.send("ann@s0.test")
    await here.until_step(message, "delivered")

    assert (await here.steps(message)).count("deferred") == 1
    assert server.by_source == {A: 1}


async def test_a_source_that_the_host_loses_is_left_to_others(here: World, server: Witness) -> None:
    await sources_store.set_pool(here.pool, "all", (PoolMember(A), PoolMember("203.0.113.9")))
    await sources_store.assign(here.pool, Assignment("*", None, "all"))
    gone = SourceIp("203.0.113.9", "gone.sources.test")
    await here.mta(source_ips=(BOTH[0], gone), fresh_due_s=0.5)
    messages = await here.send_many(20, lambda n: f"reader{n}@s{n}.test")
    await here.until_idle()

    assert {await here.status(message) for message in messages} == {"delivered"}
    assert server.by_source == {A: 20}
    assert "deferred" not in [step for message in messages for step in await here.steps(message)]
