"""Recognise the company that hosts a domain's DNS, by the name servers of its zone.

The answer only helps people find the page on which to publish records: nothing depends on it, and failures of DNS give
no answer. The service's shared resolver caches the records for up to an hour, and failures for seconds.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Final

from engine.sending.domains.suffixes import is_registry_name
from engine.store.resolver import Records, Resolver, TemporaryFailure

LOOKUP_S: Final = 2.0  # in all: a request waits for it
MAX_LABELS: Final = 8  # names above the domain that are looked up, itself included

# Name servers as the providers' documentation tells customers to set them, for example
# docs.hetzner.com/networking/dns/record-types/ns-record, developers.cloudflare.com/dns/nameservers and
# docs.aws.amazon.com/Route53/latest/DeveloperGuide/SOA-NSrecords.html.
_HOSTS: Final = tuple(
    (name, re.compile(pattern, re.ASCII))
    for name, pattern in (
        ("Amazon Route 53", r"ns-\d+\.awsdns-\d+\.(com|net|org|co\.uk)"),
        ("Azure DNS", r"ns\d+-[0-9a-f]+\.azure-dns\.(com|net|org|info)"),
        ("Cloudflare", r"[a-z]+\.ns\.cloudflare\.com"),
        ("deSEC", r"ns[12]\.desec\.(io|org)"),
        ("DigitalOcean", r"ns[123]\.digitalocean\.com"),
        ("DNSimple", r"ns\d\.dnsimple(-edge)?\.(com|net|org)"),
        ("Gandi", r"ns-\d+-[abc]\.gandi\.net"),
        ("GoDaddy", r"(ns|pdns)\d+\.domaincontrol\.com"),
        ("Google Cloud DNS", r"ns-cloud-[a-z]\d\.googledomains\.com"),
        ("Hetzner", r"((helium|hydrogen|oxygen)\.ns\.hetzner\.(com|de))|((ns1|ns)\.your-server\.de)"),
        ("Hostinger", r"(ns\d|[a-z]+)\.dns-parking\.com"),
        ("IONOS", r"ns\d+\.ui-dns\.(biz|com|de|org)"),
        ("Linode", r"ns[1-5]\.linode\.com"),
        ("Namecheap", r"(dns\d|freedns\d|pdns\d)\.registrar-servers\.com"),
        ("OVHcloud", r"((dns|ns)\d+\.ovh\.(net|ca))|([a-z]+\d*\.anycast\.me)"),
        ("Porkbun", r"[a-z]+\.ns\.porkbun\.com"),
        ("Squarespace", r"(connect|ns)\d+\.squarespacedns\.com"),
        ("Vercel", r"ns[12]\.vercel-dns(-\d)?\.com"),
        ("Wix", r"ns\d+\.wixdns\.net"),
    )
)


async def dns_host(resolver: Resolver, domain: str) -> str | None:
    """Return the DNS host of a domain (lower-case A-labels), None if it is unknown or DNS gives no answer in time."""
    try:
        async with asyncio.timeout(LOOKUP_S):
            return host_of(await _name_servers(resolver, domain))
    except TimeoutError:
        return None


def host_of(name_servers: Iterable[str]) -> str | None:
    """Return the host to which all of these name servers belong, in lower case without final dot; None otherwise."""
    hosts = {_host(one) for one in name_servers}
    return hosts.pop() if len(hosts) == 1 else None


def _host(name_server: str) -> str | None:
    return next((name for name, pattern in _HOSTS if pattern.fullmatch(name_server)), None)


async def _name_servers(resolver: Resolver, domain: str) -> tuple[str, ...]:
    """Return the name servers of the zone that contains the domain; none if a look-up fails."""
    for name in _upwards(domain):
        found = await resolver.ns(name)
        if isinstance(found, TemporaryFailure):
            return ()
        if isinstance(found, Records) and found.canonical is None:  # those of an alias belong to another zone
            return found.values
    return ()


def _upwards(domain: str) -> Iterator[str]:
    """Yield the domain and the names above it, without those of registries."""
    labels = domain.split(".")
    for start in range(min(len(labels) - 1, MAX_LABELS)):
        name = ".".join(labels[start:])
        if is_registry_name(name):
            return
        yield name
