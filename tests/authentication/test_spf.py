"""Rules of the SPF evaluator beside the suite of RFC 7208: limits, time, and senders that are unusual."""

import time
from ipaddress import ip_address

import pytest

from engine.authentication.spf import SpfClient, SpfResult, check_host
from engine.authentication.spf_macros import MacroValues, SpfSyntaxError, expanded_domain
from engine.authentication.spf_record import MAX_RECORD, parse
from engine.base.settings import HostPort
from engine.store.resolver import Resolver
from ops.local.dns import DnsBehaviour, Responder
from tests.harness.patience import PATIENCE_S


async def evaluated(
    dns: Resolver, ip: str = "192.0.2.7", sender: str = "a@shop.test", helo: str = "mx.shop.test"
) -> SpfResult:
    return await check_host(dns, SpfClient(ip_address(ip), sender, helo), at=0)


async def test_the_detail_names_the_mechanism_that_matched(zone: Responder, resolver: Resolver) -> None:
    zone.set("shop.test", "TXT", ["v=spf1 include:esp.test ~all"])
    zone.set("esp.test", "TXT", ["v=spf1 ip4:192.0.2.0/24 -all"])

    assert (await evaluated(resolver)).detail == "client 192.0.2.7: matched include:esp.test"
    assert (await evaluated(resolver, "198.51.100.1")).result == "softfail"


async def test_a_mapped_address_is_an_ipv4_client(zone: Responder, resolver: Resolver) -> None:
    zone.set("shop.test", "TXT", ["v=spf1 ip4:192.0.2.7 -all"])

    assert (await evaluated(resolver, "::ffff:192.0.2.7")).result == "pass"


async def test_an_international_domain_is_looked_up_by_its_a_labels(zone: Responder, resolver: Resolver) -> None:
    zone.set("xn--bcher-kva.test", "TXT", ["v=spf1 ip4:192.0.2.7 -all"])

    found = await evaluated(resolver, sender="jürgen@bücher.test")

    assert (found.result, found.domain) == ("pass", "xn--bcher-kva.test")


async def test_a_macro_with_a_non_ascii_local_part_matches_nothing(zone: Responder, resolver: Resolver) -> None:
    zone.set("shop.test", "TXT", ["v=spf1 exists:%{l}.users.shop.test -all"])
    zone.set("ann.users.shop.test", "A", ["127.0.0.2"])

    assert (await evaluated(resolver, sender="ann@shop.test")).result == "pass"
    assert (await evaluated(resolver, sender="jürgen@shop.test")).result == "fail"


@pytest.mark.parametrize(
    "domain", ["shop.test(.evil.test", "shop.test .evil.test", "shop.test\\.evil.test", "shop", ""]
)
async def test_a_sender_without_a_plain_domain_has_no_result(resolver: Resolver, domain: str) -> None:
    assert (await evaluated(resolver, sender=f"a@{domain}", helo="[192.0.2.7]")).result == "none"


async def test_a_local_part_with_escapes_stays_one_name(zone: Responder, resolver: Resolver) -> None:
    zone.set("shop.test", "TXT", ["v=spf1 exists:%{l}.users.shop.test -all"])

    assert (await evaluated(resolver, sender='"a\\b c"@shop.test')).result == "fail"
    assert any("users" in question.name for question in zone.questions)


async def test_a_silent_server_ends_as_a_temporary_error_in_time(zone: Responder, resolver: Resolver) -> None:
    zone.behave("shop.test", DnsBehaviour(drop=True))
    began = time.monotonic()

    client = SpfClient(ip_address("192.0.2.7"), "a@shop.test", "mx.shop.test")
    found = await check_host(resolver, client, at=0, max_seconds=0.3)

    assert found.result == "temperror"
    assert time.monotonic() - began < PATIENCE_S


async def test_a_record_that_includes_itself_is_a_permanent_error(zone: Responder, resolver: Resolver) -> None:
    zone.set("shop.test", "TXT", ["v=spf1 include:shop.test -all"])

    assert (await evaluated(resolver)).result == "permerror"


async def test_hosts_without_ipv6_do_not_fail_an_ipv6_client(zone: Responder, resolver: Resolver) -> None:
    hosts = [f"mx{number}.shop.test" for number in range(4)]
    for host in hosts:
        zone.set(host, "A", ["192.0.2.1"])
    zone.set("shop.test", "MX", [f"10 {host}." for host in hosts])
    terms = " ".join(f"a:{host}" for host in hosts)
    zone.set("shop.test", "TXT", [f"v=spf1 {terms} mx ip6:2001:db8::/32 -all"])
    zone.set("void.test", "TXT", ["v=spf1 a:no1.test a:no2.test a:no3.test ip6:2001:db8::/32 -all"])

    assert (await evaluated(resolver, "2001:db8::7")).result == "pass"
    assert (await evaluated(resolver, "2001:db9::7")).result == "fail"
    assert (await evaluated(resolver, "2001:db8::7", "a@void.test")).result == "permerror"


async def test_only_the_first_addresses_of_a_name_count(zone: Responder) -> None:
    # A busy machine needs time for the answer of 24 KB.
    resolver = Resolver((HostPort(*zone.address),), query_timeout_s=PATIENCE_S, budget_s=PATIENCE_S)
    zone.set("shop.test", "TXT", ["v=spf1 a:few.shop.test a:many.shop.test -all"])
    zone.set("few.shop.test", "A", ["198.51.100.1", "192.0.2.9"])
    zone.set("many.shop.test", "A", [f"10.0.{n // 250}.{n % 250}" for n in range(1_500)])

    assert (await evaluated(resolver, "192.0.2.9")).result == "pass"
    assert (await evaluated(resolver, "10.9.9.9")).result == "fail"
    await resolver.close()


@pytest.mark.parametrize(
    "record",
    [
        b"v=spf1 " + b"a " * MAX_RECORD,
        b"v=spf1 exists:" + b"%{l}" * 100 + b".test",
        b"v=spf1 exists:%{z}.test",
        b"v=spf1 exists:%{c}.test",
        b"v=spf1 exists:%{l0}.test",
        b"v=spf1 a:b.1",
        b"v=spf1 ip4:192.0.2.1/33",
        b"v=spf1 ip4:192.0.2.01",
        b"v=spf1 ip6:192.0.2.1",
        b"v=spf1 all:x",
        b"v=spf1 -all\xc3\xa9",
        b"v=spf1 redirect=a.test redirect=b.test",
        b"v=spf1 redirect=",
        b"v=spf1 include",
        b"v=spf1 mx/",
        b"v=spf1\t-all",
    ],
)
def test_a_syntax_error_is_found_before_anything_is_queried(record: bytes) -> None:
    with pytest.raises(SpfSyntaxError):
        parse(record)


def test_a_name_that_is_too_long_loses_labels_on_the_left() -> None:
    values = MacroValues(ip_address("192.0.2.7"), "a." * 60 + "a", "shop.test", "shop.test", "mx", "unknown", "us", 0)

    name = expanded_domain("%{l}.%{l}.%{l}.shop.test", values)

    assert name.startswith("a.a.")
    assert name.endswith(".shop.test")
    assert len(name) in {252, 253}
