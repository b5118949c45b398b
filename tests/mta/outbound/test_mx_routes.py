"""From a domain to the hosts to try, against a real DNS server."""

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.base.netaddr import is_public
from engine.base.settings import HostPort, Settings, SourceIp
from engine.delivery.mx_routes import Router, own_names
from engine.delivery.outcome import Category, Verdict, classify
from engine.delivery.routes import MailHost, Route, Unroutable
from engine.mail.replies import Break, BreakKind, Phase, Reply
from engine.store.resolver import Resolver
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.patience import PATIENCE_S

PUBLIC = ("192.88.100.1", "8.8.8.8", "9.9.9.9")


@asynccontextmanager
async def routing(zone: Responder, query_timeout_s: float = PATIENCE_S, **options: Any) -> AsyncIterator[Router]:
    resolver = Resolver([HostPort(*zone.address)], query_timeout_s=query_timeout_s, budget_s=PATIENCE_S)
    router = Router(resolver, port=25, **{"rng": random.Random(7)} | options)
    try:
        yield router
    finally:
        await router.close()
        await resolver.close()


def host(zone: Responder, name: str, *ipv4: str, ipv6: tuple[str, ...] = ()) -> None:
    zone.set(name, "A", list(ipv4))
    zone.set(name, "AAAA", list(ipv6))


async def routed(router: Router, domain: str) -> Route:
    found = await router.route(domain)
    assert isinstance(found, Route), found
    return found


async def refused(router: Router, domain: str) -> Reply:
    found = await router.route(domain)
    assert isinstance(found, Unroutable)
    assert found.answer.phase is Phase.ROUTE
    assert isinstance(found.answer.outcome, Reply), found
    assert classify(found.answer).verdict is Verdict.BOUNCED
    return found.answer.outcome


async def deferred(router: Router, domain: str) -> None:
    found = await router.route(domain)
    assert isinstance(found, Unroutable)
    assert isinstance(found.answer.outcome, Break), found
    assert found.answer.outcome.kind is BreakKind.DNS
    assert classify(found.answer).verdict is Verdict.DEFERRED


async def test_hosts_come_by_preference_and_ipv4_first(zone: Responder) -> None:
    zone.set("b.test", "MX", ["20 mx2.b.test.", "10 mx1.b.test."])
    host(zone, "mx1.b.test", "8.8.8.8", ipv6=("2a00:1450::1",))
    host(zone, "mx2.b.test", "9.9.9.9")
    async with routing(zone) as router:
        route = await routed(router, "b.test")
    assert route.hosts == (MailHost("mx1.b.test", ("8.8.8.8", "2a00:1450::1")), MailHost("mx2.b.test", ("9.9.9.9",)))
    assert route.port == 25


async def test_equals_take_turns(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 a.b.test.", "10 b.b.test.", "20 c.b.test."])
    for name, address in zip(("a.b.test", "b.b.test", "c.b.test"), PUBLIC, strict=True):
        host(zone, name, address)
    host(zone, "c.b.test", "8.8.4.4", "8.8.8.8")
    async with routing(zone) as router:
        routes = [await routed(router, "b.test") for _ in range(40)]
    assert {route.hosts[0].name for route in routes} == {"a.b.test", "b.b.test"}
    assert {route.hosts[2].name for route in routes} == {"c.b.test"}
    assert {route.hosts[2].addresses[0] for route in routes} == {"8.8.4.4", "8.8.8.8"}


async def test_null_mx_bounces_at_once(zone: Responder) -> None:
    zone.null_mx("b.test")
    host(zone, "b.test", "8.8.8.8")
    async with routing(zone) as router:
        reply = await refused(router, "b.test")
        found = await router.route("b.test")
    assert (reply.code, reply.enhanced) == (556, "5.1.10")
    assert isinstance(found, Unroutable)
    assert classify(found.answer).suppress


async def test_missing_domain_bounces_at_once_and_does_not_suppress(zone: Responder) -> None:
    async with routing(zone) as router:
        reply = await refused(router, "nowhere.example")
        found = await router.route("nowhere.example")
    assert (reply.code, reply.enhanced) == (550, "5.1.2")
    assert isinstance(found, Unroutable)
    outcome = classify(found.answer)
    assert (outcome.category, outcome.suppress) == (Category.DNS, False)


async def test_domain_without_mx_is_its_own_host(zone: Responder) -> None:
    host(zone, "b.test", "8.8.8.8")
    async with routing(zone) as router:
        route = await routed(router, "b.test")
    assert (route.site, route.hosts) == ("b.test", (MailHost("b.test", ("8.8.8.8",)),))


async def test_domain_with_neither_mx_nor_address_bounces(zone: Responder) -> None:
    zone.set("b.test", "TXT", ["hello"])
    async with routing(zone) as router:
        assert (await refused(router, "b.test")).enhanced == "5.1.2"


@pytest.mark.parametrize("behaviour", [DnsBehaviour(rcode="SERVFAIL"), DnsBehaviour(drop=True)])
async def test_failing_dns_defers(zone: Responder, behaviour: DnsBehaviour) -> None:
    zone.behave("b.test", behaviour)
    zone.set("c.test", "MX", ["10 mx.c.test."])
    zone.behave("mx.c.test", behaviour)
    async with routing(zone, query_timeout_s=0.5 if behaviour.drop else PATIENCE_S) as router:
        await deferred(router, "b.test")
        await deferred(router, "c.test")


async def test_failing_mx_lookup_never_falls_back_to_the_address(zone: Responder) -> None:
    host(zone, "b.test", "8.8.8.8")
    zone.behave("b.test", DnsBehaviour(rcode="SERVFAIL"), "MX")
    async with routing(zone) as router:
        await deferred(router, "b.test")


async def test_hosts_that_cannot_be_found_are_left_out(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 gone.b.test.", "20 failing.b.test.", "30 good.b.test."])
    host(zone, "good.b.test", "8.8.8.8")
    zone.behave("failing.b.test", DnsBehaviour(rcode="SERVFAIL"))
    async with routing(zone) as router:
        assert [found.name for found in (await routed(router, "b.test")).hosts] == ["good.b.test"]


async def test_mail_hosts_without_any_address_bounce(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 gone.example."])
    async with routing(zone) as router:
        assert (await refused(router, "b.test")).enhanced == "5.4.4"


async def test_broken_ipv6_lookup_leaves_ipv4(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    host(zone, "mx.b.test", "8.8.8.8")
    zone.behave("mx.b.test", DnsBehaviour(rcode="SERVFAIL"), "AAAA")
    async with routing(zone) as router:
        assert (await routed(router, "b.test")).hosts == (MailHost("mx.b.test", ("8.8.8.8",)),)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "64:ff9b::a9fe:a9fe"])
async def test_private_mail_host_is_refused_unless_allowed(zone: Responder, address: str) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    zone.set("mx.b.test", "AAAA" if ":" in address else "A", [address])
    async with routing(zone) as router:
        assert (await refused(router, "b.test")).enhanced == "5.4.4"
    async with routing(zone, allow_private=True) as router:
        assert (await routed(router, "b.test")).hosts == (MailHost("mx.b.test", (address,)),)


async def test_private_address_among_public_ones_is_left_out(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    host(zone, "mx.b.test", "10.0.0.1", "8.8.8.8", ipv6=("fec0::1", "2a00:1450::1"))
    async with routing(zone) as router:
        assert (await routed(router, "b.test")).hosts == (MailHost("mx.b.test", ("8.8.8.8", "2a00:1450::1")),)


async def test_address_in_place_of_a_mail_host_is_refused(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 8.8.8.8."])
    async with routing(zone) as router:
        assert (await refused(router, "b.test")).enhanced == "5.4.4"
    async with routing(zone, allow_private=True) as router:
        assert (await routed(router, "b.test")).hosts == (MailHost("8.8.8.8", ("8.8.8.8",)),)


async def test_of_a_thousand_mail_hosts_ten_are_tried(zone: Responder) -> None:
    zone.set("b.test", "MX", [f"{n} mx{n:04}.b.test." for n in range(1_000)])
    for n in range(20):
        host(zone, f"mx{n:04}.b.test", "8.8.8.8")
    async with routing(zone) as router:
        route = await routed(router, "b.test")
    assert [found.name for found in route.hosts] == [f"mx{n:04}.b.test" for n in range(10)]
    assert len({question.name for question in zone.questions}) == 11


async def test_own_host_and_what_is_less_preferred_are_dropped(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx1.b.test.", "20 mail.ours.test.", "20 peer.b.test.", "30 mx3.b.test."])
    zone.set("c.test", "MX", ["10 MAIL.ours.test."])
    host(zone, "mx1.b.test", "8.8.8.8")
    async with routing(zone, own_names=["mail.ours.test"]) as router:
        assert [found.name for found in (await routed(router, "b.test")).hosts] == ["mx1.b.test"]
        assert (await refused(router, "c.test")).enhanced == "5.4.6"


async def test_where_the_service_takes_mail_its_own_host_is_a_destination(zone: Responder) -> None:
    zone.set("c.test", "MX", ["10 mail.ours.test.", "20 backup.c.test."])
    host(zone, "mail.ours.test", "9.9.9.9")
    host(zone, "backup.c.test", "8.8.8.8")
    for workers, hosts in ((1, ["mail.ours.test", "backup.c.test"]), (0, [])):
        settings = Settings(
            delivery="live", mail_host="mail.ours.test", mx_workers=workers, dns_servers=(HostPort(*zone.address),)
        )
        resolver = Resolver.from_settings(settings)
        router = Router.from_settings(settings, resolver)
        found = await router.route("c.test")
        assert ([] if isinstance(found, Unroutable) else [one.name for one in found.hosts]) == hosts
        await router.close()
        await resolver.close()


async def test_a_loop_to_ourselves_is_permanent_and_about_no_address(zone: Responder) -> None:
    zone.set("c.test", "MX", ["10 mail.ours.test."])
    async with routing(zone, own_names=["mail.ours.test"]) as router:
        found = await router.route("c.test")
    assert isinstance(found, Unroutable)
    outcome = classify(found.answer)
    assert (outcome.verdict, outcome.category, outcome.suppress) == (Verdict.BOUNCED, Category.DNS, False)


def test_our_names_are_the_mail_host_and_those_of_the_source_addresses() -> None:
    settings = Settings(
        mail_host="Mail.ours.test", source_ips=(SourceIp("192.0.2.1", "mta1.ours.test"), SourceIp("192.0.2.2"))
    )
    assert own_names(settings) == {"mail.ours.test", "mta1.ours.test"}


async def test_mail_host_that_is_an_alias_is_followed(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mail.b.test."])
    zone.set("mail.b.test", "CNAME", ["mx.provider.test."])
    zone.set("mx.provider.test", "A", ["8.8.8.8"])
    zone.set("loop.test", "MX", ["10 x.loop.test."])
    zone.set("x.loop.test", "CNAME", ["y.loop.test."])
    zone.set("y.loop.test", "CNAME", ["x.loop.test."])
    async with routing(zone) as router:
        assert (await routed(router, "b.test")).hosts == (MailHost("mail.b.test", ("8.8.8.8",)),)
        await deferred(router, "loop.test")


async def test_domains_with_the_same_hosts_share_a_site(zone: Responder) -> None:
    for domain in ("b.test", "c.test"):
        zone.set(domain, "MX", ["10 mx1.provider.test.", "20 mx2.provider.test."])
    zone.set("d.test", "MX", ["5 mx2.provider.test.", "1 mx1.provider.test."])
    zone.set("e.test", "MX", ["5 mx2.provider.test."])
    for name in ("mx1.provider.test", "mx2.provider.test"):
        host(zone, name, "8.8.8.8")
    async with routing(zone) as router:
        sites = [(await routed(router, f"{letter}.test")).site for letter in "bcde"]
    assert sites[0] == sites[1] == sites[2] != sites[3]
    assert re.fullmatch(r"provider\.test#[0-9a-f]{8}", sites[0])
    assert sites[3] == "mx2.provider.test"


async def test_route_is_cached_and_unicode_domains_are_the_same_place(zone: Responder) -> None:
    zone.set("xn--bcher-kva.test", "MX", ["10 mx.b.test."])
    host(zone, "mx.b.test", "8.8.8.8")
    async with routing(zone) as router:
        first = await routed(router, "bücher.test")
        second = await routed(router, "xn--bcher-kva.test")
        again = await routed(router, "bücher.test")
    assert first == second
    assert first is again
    assert len(zone.questions) == 3


@pytest.mark.parametrize("domain", ["[192.0.2.1]", "", "a..b", "☃" * 300])
async def test_what_is_no_domain_bounces(zone: Responder, domain: str) -> None:
    async with routing(zone) as router:
        assert (await refused(router, domain)).enhanced == "5.1.2"
    assert not zone.questions


async def test_local_mode_sends_all_to_the_sink(zone: Responder) -> None:
    zone.set("b.test", "MX", ["10 mx.b.test."])
    host(zone, "mx.b.test", "127.0.0.1")
    settings = Settings(sink_port=2601, dns_servers=(HostPort(*zone.address),))
    resolver = Resolver.from_settings(settings)
    router = Router.from_settings(settings, resolver)
    route = await routed(router, "b.test")
    await resolver.close()
    assert route == Route("mx.b.test", (MailHost("mx.b.test", ("127.0.0.1",)),), 2601)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.168.1.1",
     "192.0.0.8", "192.88.99.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "255.255.255.255", "::", "::1",
     "::127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1",
     "2002:7f00:1::", "3fff::1", "fc00::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "127.1", "0x7f.1",
     "2130706433", "", "localhost"],
)  # fmt: skip
def test_special_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "2a00:1450:4001::1a", "2606:4700::1"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)
