"""The host of a domain's DNS: recognised by its name servers, and never in the way."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import HostPort, Settings
from engine.sending.domains import dns_hosts
from engine.sending.domains.dns_hosts import dns_host, host_of
from engine.store.resolver import Resolver
from ops.local.dns import DnsBehaviour, Responder
from tests.conftest import ServeApi
from tests.harness.accounts import make_account
from tests.harness.api import Api

CLOUDFLARE = ["ada.ns.cloudflare.com.", "BOB.NS.cloudflare.com."]


@pytest.fixture(scope="module")
async def zone() -> AsyncIterator[Responder]:
    async with Responder() as running:
        yield running


@pytest.fixture
async def resolver(zone: Responder) -> AsyncIterator[Resolver]:
    made = Resolver((HostPort(*zone.address),))
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("name_servers", "host"),
    [
        (["ada.ns.cloudflare.com", "bob.ns.cloudflare.com"], "Cloudflare"),
        (["ns-421.awsdns-52.com", "ns-1654.awsdns-14.co.uk", "ns-600.awsdns-11.net"], "Amazon Route 53"),
        (["ns-cloud-a1.googledomains.com", "ns-cloud-a2.googledomains.com"], "Google Cloud DNS"),
        (["ns53.domaincontrol.com", "ns54.domaincontrol.com"], "GoDaddy"),
        (["dns1.registrar-servers.com", "dns2.registrar-servers.com"], "Namecheap"),
        (["hydrogen.ns.hetzner.com", "oxygen.ns.hetzner.com", "helium.ns.hetzner.de"], "Hetzner"),
        (["dns19.ovh.net", "ns19.ovh.net"], "OVHcloud"),
        (["dns200.anycast.me", "ns200.anycast.me"], "OVHcloud"),
        (["ns1.example.com", "ns2.example.com"], None),
        (["ada.ns.cloudflare.com", "ns1.example.com"], None),
        (["ada.ns.cloudflare.com.evil.test", "x-ns.cloudflare.com"], None),
        ([], None),
    ],
)
def test_a_host_is_known_by_all_of_its_name_servers(name_servers: list[str], host: str | None) -> None:
    assert host_of(name_servers) == host


async def test_the_zone_above_a_subdomain_counts(zone: Responder, resolver: Resolver) -> None:
    zone.set("shop.test", "NS", CLOUDFLARE)
    zone.set("a.mail.shop.test", "TXT", ["x"])
    zone.set("delegated.shop.test", "NS", ["ns1.other.test."])

    assert await dns_host(resolver, "shop.test") == "Cloudflare"
    assert await dns_host(resolver, "a.mail.shop.test") == "Cloudflare"
    assert await dns_host(resolver, "delegated.shop.test") is None


async def test_the_name_servers_of_an_alias_and_of_a_registry_do_not_count(zone: Responder, resolver: Resolver) -> None:
    zone.set("aliased.test", "CNAME", ["shop.example."])
    zone.set("shop.example", "NS", CLOUDFLARE)
    zone.set("co.uk", "NS", CLOUDFLARE)

    assert await dns_host(resolver, "aliased.test") is None
    assert await dns_host(resolver, "shop.co.uk") is None
    assert not [one for one in zone.questions if one.name == "co.uk"]


async def test_dns_that_fails_gives_no_host_and_no_error(
    zone: Responder, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_hosts, "LOOKUP_S", 0.2)
    zone.set("silent.test", "NS", CLOUDFLARE)
    zone.behave("silent.test", DnsBehaviour(drop=True))
    zone.behave("broken.test", DnsBehaviour(rcode="SERVFAIL"))

    assert await dns_host(resolver, "silent.test") is None
    assert await dns_host(resolver, "broken.test") is None


@pytest.fixture(scope="module")
def own(settings: Settings, zone: Responder, serve: ServeApi) -> Api:
    return serve(structs.replace(settings, dns_servers=(HostPort(*zone.address),)))


async def test_a_domain_and_its_setup_name_the_host_and_lists_do_not(
    own: Api, pool: asyncpg.Pool, zone: Responder
) -> None:
    api, account = own, await make_account(pool)
    zone.set(account.domain, "NS", CLOUDFLARE)
    [listed] = (await api.get("/v1/domains", account.token)).json["data"]
    one = await api.get(f"/v1/domains/{listed['id']}", account.token)
    setup = await api.get(f"/v1/domains/{listed['id']}/setup", account.token)

    assert "dnsHost" not in listed
    assert one.json == setup.json == listed | {"dnsHost": "Cloudflare"}
