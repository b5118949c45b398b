"""Parse the PROXY protocol, versions 1 and 2, in which a load balancer passes the client's address; no I/O.

Source: the protocol's specification (haproxy.org, proxy-protocol.txt, sections 2.1 and 2.2).
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_MAX_1: Final = 107  # octets of a version 1 line with its CRLF
_MAX_2: Final = 16 + 4_096  # addresses, and additions of the balancer such as certificate names and ids
_FAMILIES: Final = {b"TCP4": 4, b"TCP6": 6}


class BadProxyHeader(ValueError):  # noqa: N818 - named for what was given
    """The octets don't begin with a PROXY header."""


class ProxyHeader(NamedTuple):
    """The client's address, None for the balancer's own health checks, and how many octets the header takes."""

    client: IPv4Address | IPv6Address | None
    length: int


def parse_proxy_header(octets: bytes) -> ProxyHeader | None:
    """Parse the header at the beginning of a connection; None while it is incomplete. Raises BadProxyHeader."""
    if octets[: len(SIGNATURE)] == SIGNATURE[: len(octets)]:
        return _version_2(octets)
    if octets[:6] == b"PROXY "[: len(octets)]:
        return _version_1(octets)
    raise BadProxyHeader("there is no PROXY header")


def _version_1(octets: bytes) -> ProxyHeader | None:
    end = octets.find(b"\r\n", 0, _MAX_1)
    if end < 0:
        if len(octets) >= _MAX_1:
            raise BadProxyHeader("the PROXY line is too long")
        return None
    words = octets[:end].split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return ProxyHeader(None, end + 2)
    if len(words) != 6 or words[1] not in _FAMILIES:
        raise BadProxyHeader("the PROXY line is malformed")
    try:
        client, server = (ip_address(word.decode("ascii")) for word in words[2:4])
        ports = [int(word) for word in words[4:] if word.isdigit()]
    except ValueError as error:
        raise BadProxyHeader("the PROXY line holds no address") from error
    if client.version != _FAMILIES[words[1]] or server.version != client.version:
        raise BadProxyHeader("the PROXY line's addresses are of another family")
    if len(ports) != 2 or max(ports) > 65_535:
        raise BadProxyHeader("the PROXY line's ports are malformed")
    return ProxyHeader(_unmapped(client), end + 2)


def _version_2(octets: bytes) -> ProxyHeader | None:
    if len(octets) < 16:
        return None
    version, family = octets[12], octets[13]
    length = 16 + int.from_bytes(octets[14:16], "big")
    if version not in (0x20, 0x21) or length > _MAX_2:
        raise BadProxyHeader("the PROXY header is of another version, or too long")
    if len(octets) < length:
        return None
    if version == 0x20:  # LOCAL: a health check of the balancer itself
        return ProxyHeader(None, length)
    if family == 0x11 and length >= 16 + 12:
        return ProxyHeader(IPv4Address(octets[16:20]), length)
    if family == 0x21 and length >= 16 + 36:
        return ProxyHeader(_unmapped(IPv6Address(octets[16:32])), length)
    if family == 0x00:
        return ProxyHeader(None, length)
    raise BadProxyHeader("the PROXY header is of another family")


def _unmapped(client: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return IPv4 for an IPv4-mapped address, which a balancer that listens on IPv6 for both families passes on.

    All of them share one /64: unchanged, they would count as a single client.
    """
    mapped = client.ipv4_mapped if isinstance(client, IPv6Address) else None
    return mapped or client
