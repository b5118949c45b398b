"""Decide whether an IP address belongs to the public Internet, and which network counts as one client in rate limits.

The service checks every address before it connects to a host that a customer or recipient chose. `ipaddress.is_global`
calls several of the ranges below global (NAT64 and 6to4 forms of private addresses, site-local, multicast), so this
module has its own list: the IANA special-purpose registries (RFC 6890 and its updates), and for IPv6 only global
unicast 2000::/3.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

# Prefix lengths that providers delegate to one customer (RIPE-690), and how many times the limit of a /64 each has.
SHARES = {56: 4, 48: 16}

_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network (RFC 791)
        "10.0.0.0/8",  # private (RFC 1918)
        "100.64.0.0/10",  # carrier-grade NAT (RFC 6598)
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local (RFC 3927), cloud metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocol assignments (RFC 6890)
        "192.0.2.0/24",  # documentation (RFC 5737)
        "192.31.196.0/24",  # AS112 (RFC 7535)
        "192.52.193.0/24",  # AMT (RFC 7450)
        "192.88.99.0/24",  # 6to4 relay anycast (RFC 7526)
        "192.168.0.0/16",
        "192.175.48.0/24",  # AS112 (RFC 7534)
        "198.18.0.0/15",  # benchmarking (RFC 2544)
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_V6_GLOBAL = IPv6Network("2000::/3")  # all global unicast in use; excludes ::/8, 64:ff9b::, fc00::, fec0::
_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarking, ORCHID (RFC 2928)
        "2001:db8::/32",  # documentation (RFC 3849)
        "2002::/16",  # 6to4: embeds any IPv4 address (RFC 3056)
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation (RFC 9637)
    )
)


def is_public(ip: str | IPv4Address | IPv6Address) -> bool:
    """Return True for an address that the public Internet routes to one host.

    False for every special range, for IPv4 inside IPv6 in any form, for a scoped address (`%eth0`) and for text that is
    not an address in canonical notation (`0x7f.1`, `127.1`).
    """
    if isinstance(ip, str):
        try:
            ip = ip_address(ip)
        except ValueError:
            return False
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _V4)
    if ip.scope_id is not None or ip not in _V6_GLOBAL:
        return False
    return not any(ip in network for network in _V6)


def network_of(address: str) -> str:
    """Return an IPv4 address itself, or the /64 of an IPv6 address: a single host can use all of its /64."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ip_network((parsed, 64), strict=False).network_address)
    return str(parsed)


def wider_networks(address: str) -> tuple[tuple[str, int], ...]:
    """Return the /56 and the /48 around an IPv6 address, which providers give to one customer, each with its length.

    None for IPv4: neighbours of an IPv4 address are other customers.
    """
    network = network_of(address)
    if ":" not in network:
        return ()
    return tuple((str(ip_network((network, length), strict=False)), length) for length in SHARES)


def connect_host(listening: str) -> str:
    """Return the address at which this host reaches a server of its own that listens on `listening`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listening, listening)  # noqa: S104 - read, not bound
