"""Routes of domains: the mail hosts in the order of attempts, or the answer that there are none. Pure values."""

import msgspec
from msgspec import Struct

from engine.delivery.sites import Family
from engine.mail.replies import Answer


class MailHost(Struct, frozen=True):
    """A mail exchanger: `addresses` in order of trial, IPv4 first, at least one.

    `authentic` says that the resolver validated them; then `canonical` is the name that holds them where `name` is an
    alias.
    """

    name: str
    addresses: tuple[str, ...]
    authentic: bool = False
    canonical: str | None = None


class Route(Struct, frozen=True):
    """The mail hosts of a domain. `site` is the same for all domains with the same set of MX hosts.

    `authentic` says that the resolver validated the MX records, or that there are none and the domain's own address.
    `built_in`: this process's own simulator, which DNS, TLS policies and source addresses have nothing to do with.
    """

    site: str
    hosts: tuple[MailHost, ...]
    port: int
    authentic: bool = False
    built_in: bool = False


class Unroutable(Struct, frozen=True):
    """The domain has no server to connect to; `answer` (phase ROUTE) says for how long: a Reply fails the message, a
    Break defers it."""

    answer: Answer


def preferring(route: Route, family: Family) -> Route:
    """Return the route with its hosts' addresses in the order that the site's rule wants, or of one family alone."""
    if family is Family.IPV4:
        return route
    first = family in (Family.IPV4, Family.IPV4_ONLY)
    hosts = []
    for host in route.hosts:
        addresses = sorted(host.addresses, key=lambda ip: (":" not in ip) is not first)
        if family in (Family.IPV4_ONLY, Family.IPV6_ONLY):
            addresses = [ip for ip in addresses if (":" not in ip) is first]
        if addresses:
            hosts.append(msgspec.structs.replace(host, addresses=tuple(addresses)))
    return msgspec.structs.replace(route, hosts=tuple(hosts))
